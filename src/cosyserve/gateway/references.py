"""Voices of recordings that come with a request: learned once, remembered while there is room.

Knows no route.
"""

from __future__ import annotations

import asyncio
import hashlib

from cosyserve.contracts import Engine, Recording, Voice
from cosyserve.gateway.decoding import Decoder
from cosyserve.voices.lru import ByteLRU


class References:
    def __init__(self, engine: Engine, decoder: Decoder, cache_bytes: int) -> None:
        self._engine, self._decoder = engine, decoder
        self._learned: ByteLRU[Voice] = ByteLRU(cache_bytes)

    async def voice(self, recording: bytes, text: str) -> Voice:
        """The voice of a recording in which this is said."""
        digest = await asyncio.to_thread(hashlib.sha256, recording)
        key = f"{self._engine.model.fingerprint}/{digest.hexdigest()}/{text}"
        if known := self._learned.get(key):
            return known
        audio = await self._decoder.decode(recording)
        voice = await self._engine.embed(Recording(audio.samples, audio.rate, text))
        size = voice.mel.nbytes + voice.speech_tokens.nbytes + voice.embedding.nbytes
        self._learned.put(key, voice, size)
        return voice
