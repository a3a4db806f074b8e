"""Replies wait for their request, but not without end."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from cosyserve.contracts import AudioChunk
from cosyserve.engine.workers.replies import Replies, Reply
from cosyserve.errors import SlowReaderError, WorkerError

SIZE = 400  # bytes of a chunk


def chunk(index: int, size: int = SIZE) -> AudioChunk:
    return AudioChunk(np.zeros(size // 4, np.float32), index, start=0.0, tokens=1)


async def take(replies: Replies, count: int) -> list[Reply]:
    return [await asyncio.wait_for(replies.get(), 5) for _ in range(count)]


def test_replies_come_in_order_and_are_waited_for() -> None:
    async def story() -> None:
        replies = Replies(SIZE)
        taking = asyncio.create_task(take(replies, 4))
        for index in range(3):
            await asyncio.sleep(0)
            replies.put(chunk(index))
            await asyncio.sleep(0)
        died = WorkerError("died")
        replies.put(died)
        *chunks, last = await taking
        assert [c.index for c in chunks if isinstance(c, AudioChunk)] == [0, 1, 2]
        assert last is died
        assert not replies.given_up

    asyncio.run(story())


@pytest.mark.parametrize("taken", [0, 3])
def test_a_reader_that_falls_behind_is_given_up(taken: int) -> None:
    async def story() -> None:
        replies = Replies(3 * SIZE)
        for index in range(taken):  # what was taken does not count
            replies.put(chunk(index))
            await take(replies, 1)
        for index in range(3):
            replies.put(chunk(index))
        assert not replies.given_up
        replies.put(chunk(3))
        assert replies.given_up
        replies.put(chunk(4))
        (error,) = await take(replies, 1)
        assert isinstance(error, SlowReaderError)
        assert f"{3 * SIZE} bytes" in str(error)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(replies.get(), 0.01)  # the audio is gone

    asyncio.run(story())


def test_one_chunk_alone_may_be_larger() -> None:
    async def story() -> None:
        replies = Replies(SIZE)
        replies.put(chunk(0, 10 * SIZE))
        (reply,) = await take(replies, 1)
        assert isinstance(reply, AudioChunk)
        replies.put(chunk(1))
        assert await take(replies, 1)

    asyncio.run(story())
