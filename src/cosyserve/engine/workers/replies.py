"""What a worker has said to one request, and the request has not taken yet."""

from __future__ import annotations

import asyncio
from collections import deque

from cosyserve.contracts import AudioChunk, Voice
from cosyserve.errors import SlowReaderError

Reply = AudioChunk | Voice | Exception


class Replies:
    """Bounded by the bytes of audio that wait: past that, an error takes the place of all of it."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._waiting: deque[Reply] = deque()
        self._arrived = asyncio.Event()
        self._bytes = 0
        self.given_up = False  # no more is taken

    def put(self, reply: Reply) -> None:
        if self.given_up:
            return
        size = reply.samples.nbytes if isinstance(reply, AudioChunk) else 0
        if self._waiting and self._bytes + size > self._max_bytes:
            self._waiting.clear()
            self.given_up = True
            reply = SlowReaderError(
                f"more than {self._max_bytes} bytes of audio wait to be read, which is the limit: "
                "read faster, or ask for less at a time"
            )
        self._bytes += size
        self._waiting.append(reply)
        self._arrived.set()

    async def get(self) -> Reply:
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        reply = self._waiting.popleft()
        if isinstance(reply, AudioChunk):
            self._bytes -= reply.samples.nbytes
        return reply
