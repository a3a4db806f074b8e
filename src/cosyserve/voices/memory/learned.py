"""Voices learned on demand, each once, and remembered within a number of bytes."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import numpy as np

from cosyserve.contracts import Voice
from cosyserve.errors import ConsentError
from cosyserve.voices.memory.lru import IDLE_SECONDS, ByteLRU


@dataclass(eq=False)
class Learning:
    """A voice that is being learned; with its last waiter, the task goes."""

    task: asyncio.Task[Voice]
    waiters: int = 0


class LearnedVoices:
    """Voices by a hash of what they are learned from. Used from one event loop."""

    def __init__(self, cache_bytes: int, require_consent: bool = False) -> None:
        self._require_consent = require_consent
        self._voices: ByteLRU[Voice] = ByteLRU(cache_bytes, IDLE_SECONDS)
        self._running: dict[str, Learning] = {}

    async def get(
        self, *source: bytes | str, learn: Callable[[], Awaitable[Voice]], consent: str = ""
    ) -> Voice:
        """The voice of this source. It is learned unless it is remembered or being learned.

        `consent` says who agreed to this use of their voice.
        """
        self.check_consent(consent)
        key = await asyncio.to_thread(_key, source)
        voice = self._voices.get(key)
        return voice or await self._wait(key, learn)

    def check_consent(self, consent: str) -> None:
        if self._require_consent and not consent.strip():
            raise ConsentError(
                "this server speaks in the voice of a recording only with consent: say in "
                "'consent' who agreed to it"
            )

    async def _wait(self, key: str, learn: Callable[[], Awaitable[Voice]]) -> Voice:
        learning = self._running.get(key)
        if learning is None or learning.task.done():
            learning = Learning(asyncio.create_task(self._learn(key, learn)))
            self._running[key] = learning
        learning.waiters += 1
        try:
            return await asyncio.shield(learning.task)
        finally:
            learning.waiters -= 1
            if not learning.waiters:
                await self._end(key, learning)

    async def _learn(self, key: str, learn: Callable[[], Awaitable[Voice]]) -> Voice:
        voice = await learn()
        self._voices.put(key, voice, voice_size(voice))
        return voice

    async def _end(self, key: str, learning: Learning) -> None:
        if self._running.get(key) is learning:
            del self._running[key]
        learning.task.cancel()
        await asyncio.wait([learning.task])


def voice_size(voice: Voice) -> int:
    """The bytes that a voice takes in memory: its arrays, and its texts by their characters."""
    values = vars(voice).values()
    arrays = sum(value.nbytes for value in values if isinstance(value, np.ndarray))
    return arrays + sum(len(value) for value in values if isinstance(value, str))


def _key(source: tuple[bytes | str, ...]) -> str:
    digest = hashlib.sha256()
    for part in source:
        data = part.encode(errors="surrogatepass") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()
