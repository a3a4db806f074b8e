"""The voices a client may name: those of the model, then those of the store.

A name of the model's is taken: nothing stored can stand in front of it. Knows no route.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from cosyserve.contracts import Engine, Voice, VoiceError
from cosyserve.gateway.errors import Refusal

DEFAULT = "default"
# Programs written for OpenAI's service name these; they speak with the default voice.
OPENAI_VOICES = {
    *("alloy", "ash", "ballad", "cedar", "coral", "echo", "fable"),
    *("marin", "nova", "onyx", "sage", "shimmer", "verse"),
}


class VoiceStore(Protocol):
    """Voices by name, kept somewhere; calls may block. A `VoiceError` says what is wrong."""

    def names(self) -> Sequence[str]: ...

    def get(self, name: str) -> Voice: ...

    def put(self, name: str, voice: Voice) -> object: ...

    def remove(self, name: str) -> None: ...

    def check_name(self, name: str) -> None: ...


class KnownVoices:
    def __init__(self, engine: Engine, store: VoiceStore) -> None:
        self._engine = engine
        self._store = store

    def is_shipped(self, name: str) -> bool:
        return name in self._engine.model.voices

    async def names(self) -> list[str]:
        stored = await asyncio.to_thread(self._store.names)
        return sorted({*self._engine.model.voices, *stored})

    async def get(self, name: str) -> Voice:
        """The voice of exactly this name."""
        shipped = self._engine.model.voices.get(name)
        if shipped is not None:
            return shipped
        try:
            return await asyncio.to_thread(self._store.get, name)
        except VoiceError as error:
            if await self._is_stored(name):
                raise
            raise _missing(name) from error

    async def speaker(self, name: str) -> Voice:
        """The voice to speak with when a client says this name."""
        try:
            return await self.get(name)
        except Refusal:
            if name not in OPENAI_VOICES:
                raise
            return await self.get(DEFAULT)

    async def check_free(self, name: str) -> None:
        self._store.check_name(name)
        if name in await self.names():
            raise Refusal(409, f"there is a voice named '{name}' already", "voice_exists")

    async def put(self, name: str, voice: Voice) -> None:
        await asyncio.to_thread(self._store.put, name, voice)

    async def remove(self, name: str) -> None:
        if self.is_shipped(name):
            message = f"voice '{name}' is part of the model and can't be removed"
            raise Refusal(409, message, "voice_is_shipped")
        if not await self._is_stored(name):
            raise _missing(name)
        await asyncio.to_thread(self._store.remove, name)

    async def _is_stored(self, name: str) -> bool:
        return name in await asyncio.to_thread(self._store.names)


def _missing(name: str) -> Refusal:
    message = f"no voice named '{name:.80}'; GET /v1/audio/voices lists them"
    return Refusal(404, message, "voice_not_found", param="voice")
