from __future__ import annotations

import signal

import pytest

from cosyserve.signals import ENDING, own_handlers


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in ENDING]


@pytest.mark.parametrize("error", [None, ZeroDivisionError, SystemExit])
def test_handlers_are_back_behind_the_block(error: type[BaseException] | None) -> None:
    before = handlers()
    try:
        with own_handlers():
            for number in ENDING:
                signal.signal(number, signal.SIG_IGN)
            assert handlers() != before
            if error:
                raise error
    except (ZeroDivisionError, SystemExit):
        pass
    assert handlers() == before
