"""The voices that a client may name, read from their store without blocking the event loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cosyserve.contracts import Engine, ModelInfo, Voice
from cosyserve.errors import MissingVoiceError, VoiceError
from cosyserve.gateway.errors import Refusal
from cosyserve.gateway.models import Models
from cosyserve.gateway.voices.stand_ins import OPENAI_VOICES, stand_ins
from cosyserve.gateway.voices.store_threads import StoreThreads
from cosyserve.voices.fits import check_fits
from cosyserve.voices.library import NO_VOICE, VoiceLibrary
from cosyserve.voices.store import DEFAULT, VoiceStore, check_name


class KnownVoices:
    def __init__(
        self,
        engine: Engine | Models,
        store: VoiceStore,
        default_voice: str = "",
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        """`aliases`: the voices' further names."""
        models = Models.of(engine)
        self._aliases = aliases or {}
        self._library = VoiceLibrary(store, lambda: _shipped(models), default_voice)
        if default_voice:
            check_fits(self._library.get(DEFAULT), engine.model.voice_format)
        self._threads = StoreThreads()

    def is_shipped(self, voice: Voice) -> bool:
        return self._library.is_shipped(voice)

    async def names(self, model: ModelInfo | None = None) -> dict[str, bool]:
        """All names, each with whether it means a voice of the model's; of other models' voices
        none, if one is given."""
        names = await self._threads.run(self._library.names)
        if model:
            names = {n: ours for n, ours in names.items() if not ours or self._of(model, n)}
        return names | {
            alias: names[name] for alias, name in self._aliases.items() if name in names
        }

    async def get(self, name: str) -> Voice:
        """The voice of exactly this name, or of this alias."""
        _, voice = await self._find(self._aliases.get(name, name))
        return voice

    async def speaker(self, name: str, model: ModelInfo) -> Voice:
        """The voice for a model to speak with when a client says this name."""
        name = self._aliases.get(name, name)
        names = [name, stand_ins(model.voices)[name]] if name in OPENAI_VOICES else [name]
        name, voice = await self._find(*names)
        if not self.is_shipped(voice) or any(voice is own for own in model.voices.values()):
            return voice
        # It came with another model of this server.
        if name not in model.voices:
            raise VoiceError(NO_VOICE) if name == DEFAULT else _missing(name)
        return model.voices[name]

    async def check_free(self, name: str) -> None:
        if name in await self.names():
            raise _taken(name)
        check_name(name)

    async def add(self, name: str, voice: Voice) -> None:
        if not await self._threads.run(self._library.store.add, name, voice):
            raise _taken(name)  # by somebody who was quicker

    async def remove(self, name: str) -> None:
        if self._library.is_default(name):
            message = (
                f"voice '{name}' is this server's default: choose another with --default-voice"
            )
            raise Refusal(409, message, "voice_is_default")
        try:
            await self._threads.run(self._library.store.remove, name)
        except MissingVoiceError as error:
            since = await self._threads.run(self._library.store.names)  # it was missing
            if name in since or name not in await self.names():
                raise _missing(name) from error
            message = f"voice '{name}' is not a stored one and can't be removed"
            raise Refusal(409, message, "voice_is_shipped") from error

    def _of(self, model: ModelInfo, shipped: str) -> bool:
        """Whether the model has a voice for this name of a shipped one."""
        if shipped in model.voices:
            return True
        default = self._library.get(DEFAULT) if shipped == DEFAULT else None
        return any(default is own for own in model.voices.values())

    async def _find(self, *names: str) -> tuple[str, Voice]:
        """The first of these names that is a voice's."""
        if names[0] == DEFAULT:  # must not depend on a store
            return DEFAULT, self._library.get(DEFAULT)
        found = await self._threads.run(self._first, names)
        if found is None:
            raise _missing(names[-1])
        return found

    def _first(self, names: Sequence[str]) -> tuple[str, Voice] | None:
        for name in names:
            if voice := self._library.find(name):
                return name, voice
        return None


def _shipped(models: Models) -> Mapping[str, Voice]:
    """The voices that came with any model; of one name, the first model's."""
    shipped: dict[str, Voice] = {}
    for engine in models.engines:
        shipped = engine.model.voices | shipped
    return shipped


def _missing(name: str) -> VoiceError:
    return MissingVoiceError(f"no voice named '{name:.80}'; GET /v1/audio/voices lists them")


def _taken(name: str) -> Refusal:
    return Refusal(409, f"there is a voice named '{name}' already", "voice_exists")
