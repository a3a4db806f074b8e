"""The voices that a client may name, read from their store without blocking the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from cosyserve.contracts import Engine, Voice, VoiceFormat
from cosyserve.errors import MissingVoiceError, StoreError, VoiceError
from cosyserve.gateway.errors import Refusal
from cosyserve.voices.fits import check_fits
from cosyserve.voices.library import VoiceLibrary
from cosyserve.voices.store import DEFAULT, VoiceStore, check_name

Args = ParamSpec("Args")
Result = TypeVar("Result")

# Programs written for OpenAI's service name these; they speak with the model's voices.
OPENAI_VOICES = (
    *("alloy", "ash", "ballad", "cedar", "coral", "echo", "fable"),
    *("marin", "nova", "onyx", "sage", "shimmer", "verse"),
)
THREADS = 4  # of their own: a store that hangs must not hold up those that encode audio
STORE_SECONDS = 5.0


class KnownVoices:
    def __init__(self, engine: Engine, store: VoiceStore, default_voice: str = "") -> None:
        self._engine = engine
        self._library = VoiceLibrary(store, lambda: engine.model.voices, default_voice)
        if default_voice:
            model = engine.model
            check_fits(self._library.get(DEFAULT), VoiceFormat(model.family, model.fingerprint))
        self._threads = ThreadPoolExecutor(THREADS, "voices")

    def is_shipped(self, voice: Voice) -> bool:
        return self._library.is_shipped(voice)

    async def names(self) -> dict[str, bool]:
        """All names, each with whether it means a voice of the model's."""
        return await self._run_in_thread(self._library.names)

    async def get(self, name: str) -> Voice:
        """The voice of exactly this name."""
        if name == DEFAULT:  # must not depend on a store
            return self._library.get(name)
        try:
            return await self._run_in_thread(self._library.get, name)
        except MissingVoiceError as error:
            raise _missing(name) from error

    async def speaker(self, name: str) -> Voice:
        """The voice to speak with when a client says this name."""
        try:
            return await self.get(name)
        except MissingVoiceError:
            if name not in OPENAI_VOICES:
                raise
            return await self.get(stand_in(name, self._engine.model.voices))

    async def check_free(self, name: str) -> None:
        if name in await self.names():
            raise _taken(name)
        check_name(name)

    async def add(self, name: str, voice: Voice) -> None:
        if not await self._run_in_thread(self._library.store.add, name, voice):
            raise _taken(name)  # by somebody who was quicker

    async def remove(self, name: str) -> None:
        try:
            await self._run_in_thread(self._library.store.remove, name)
        except MissingVoiceError as error:
            if name not in await self.names():
                raise _missing(name) from error
            message = f"voice '{name}' is not a stored one and can't be removed"
            raise Refusal(409, message, "voice_is_shipped") from error

    async def _run_in_thread(
        self, function: Callable[Args, Result], *args: Args.args, **kwargs: Args.kwargs
    ) -> Result:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(STORE_SECONDS):
                return await loop.run_in_executor(self._threads, lambda: function(*args, **kwargs))
        except TimeoutError:
            raise StoreError("the voice store doesn't answer: try again later") from None


def stand_in(name: str, shipped: Iterable[str]) -> str:
    """The voice that speaks when a client says one of OpenAI's names.

    It is one of the model's that ends in that name (`af_nova`); the other names take the model's
    voices in turn, both in the order of the alphabet. A model with one voice has no choice.
    """
    own = sorted(set(shipped) - {DEFAULT})
    if len(own) < 2:
        return DEFAULT
    namesakes = (voice for voice in own if voice.endswith(f"_{name}"))
    return next(namesakes, own[OPENAI_VOICES.index(name) % len(own)])


def _missing(name: str) -> VoiceError:
    return MissingVoiceError(f"no voice named '{name:.80}'; GET /v1/audio/voices lists them")


def _taken(name: str) -> Refusal:
    return Refusal(409, f"there is a voice named '{name}' already", "voice_exists")
