"""The soak sees what grows, and what may happen beside a kill."""

from __future__ import annotations

import time

import pytest

from benchmarks.soak import GATEWAY, WORKER, Rest, _growth
from benchmarks.soak_clients import Crowd


def rest(**gateway: float) -> Rest:
    facts = {"processes": 1, "uss_mb": 80, "files": 17, "threads": 4, "shared_memory": 0}
    return Rest(0.0, 0, {GATEWAY: {**facts, **gateway}, WORKER: facts}, shared_memory=0)


def missed(rests: list[Rest]) -> set[str]:
    return {figure.name.partition(",")[0] for figure in _growth(rests) if not figure.reached}


def test_a_server_that_lasts() -> None:
    assert missed([rest(uss_mb=80 + number % 2) for number in range(10)]) == set()


@pytest.mark.parametrize(
    ("fact", "step", "name"),
    [("uss_mb", 25, "memory"), ("files", 1, "files"), ("threads", 2, "threads")],
)
def test_what_grows_is_seen(fact: str, step: float, name: str) -> None:
    found = missed([rest(**{fact: 20 + step * number}) for number in range(10)])
    assert found == {f"{name} of {GATEWAY}"}


def test_who_fails_must_have_a_reason() -> None:
    crowd, now = Crowd("http://nowhere"), time.monotonic()
    crowd._note("listener", "cut: ReadError", now)
    assert crowd.unexpected == ["listener: cut: ReadError"]
    crowd.kills.append(now)
    crowd._note("listener", "cut: ReadError", now - 1)
    crowd._note("listener", "refused 429", now - 100)
    assert len(crowd.unexpected) == 1
    crowd.kills[:] = [now - 60]
    crowd._note("listener", "refused 503", now)
    assert len(crowd.unexpected) == 2
