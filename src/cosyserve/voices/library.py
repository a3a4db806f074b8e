"""The meaning of a voice's name, the same everywhere.

`default` is the voice that a setting names, or else the model's own. Any other name is a stored
voice, or else one that came with the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cosyserve.contracts import Voice
from cosyserve.errors import MissingVoiceError, VoiceError
from cosyserve.voices.store import DEFAULT, VoiceStore

NO_VOICE = (
    "the model has no voice of its own: name a stored one (`cosyserve voice add`), send a "
    "recording (reference_audio), put a spk2info.pt into the model's folder, or choose with "
    "--default-voice"
)


class VoiceLibrary:
    def __init__(
        self,
        store: VoiceStore,
        shipped: Callable[[], Mapping[str, Voice]],
        default_voice: str = "",
    ) -> None:
        """`shipped`: the model's own voices; `default_voice`: the name of the one that `default`
        is. A stored one is read here, so that `default` never waits for a store."""
        self.store = store
        self._shipped = shipped
        self._default_name = default_voice or DEFAULT
        self._stored_default: Voice | None = None
        if default_voice:
            self._stored_default = self._find_default()

    def names(self) -> dict[str, bool]:
        """All names, each with whether it means a voice of the model's."""
        stored, shipped = set(self.store.names()), self._shipped()
        names = {name: name not in stored for name in sorted(stored | shipped.keys())}
        if self._stored_default or self._default_name in shipped:
            names[DEFAULT] = self._stored_default is None
        return names

    def get(self, name: str) -> Voice:
        voice = self.find(name)
        if voice is None:
            raise self.store.missing(name, self._shipped())
        return voice

    def find(self, name: str) -> Voice | None:
        """None: it is nobody's name."""
        if name == DEFAULT:
            return self._default()
        return self.store.find(name) or self._shipped().get(name)

    def is_default(self, name: str) -> bool:
        """Whether a setting says that `default` is this stored voice."""
        return self._stored_default is not None and name == self._default_name

    def is_shipped(self, voice: Voice) -> bool:
        """Whether `get` found the voice with the model."""
        return any(voice is own for own in self._shipped().values())

    def _default(self) -> Voice:
        voice = self._stored_default or self._shipped().get(self._default_name)
        if voice is None:
            raise VoiceError(NO_VOICE)
        return voice

    def _find_default(self) -> Voice | None:
        """The voice that a setting names; None: it is one of the model's."""
        name = self._default_name
        try:
            voice = self._shipped()[DEFAULT] if name == DEFAULT else self.get(name)
        except (KeyError, MissingVoiceError):
            known = ", ".join(known for known in self.names() if known != DEFAULT) or "none yet"
            raise MissingVoiceError(
                f"default voice '{name:.80}': there is no such voice; known: {known}"
            ) from None
        return None if self.is_shipped(voice) else voice
