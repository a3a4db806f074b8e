"""Events out of bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from cosyserve.backends.sse import MAX_EVENT_BYTES, events


def read(*pieces: bytes) -> list[str]:
    async def stream() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    async def collect() -> list[str]:
        return [data async for data in events(stream())]

    return asyncio.run(collect())


def test_any_cut_and_both_ends_of_line() -> None:
    whole = 'data: {"a": 1}\n\ndata:two\r\ndata: lines\r\n\r\n: note\n\nevent: x\ndata: ü\u2028\n\n'
    expected = ['{"a": 1}', "two\nlines", "ü\u2028"]
    data = whole.encode()
    assert read(data) == expected
    assert read(*(data[i : i + 1] for i in range(len(data)))) == expected


def test_an_event_that_is_cut_off_is_none() -> None:
    assert read(b"data: 1\n\ndata: 2\n") == ["1"]


def test_too_long_an_event() -> None:
    with pytest.raises(ValueError, match="more than"):
        read(*[b"data: " + b"x" * 65536] * (MAX_EVENT_BYTES // 65536 + 1))
