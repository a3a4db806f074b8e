"""The meaning of a voice's name, the same everywhere.

`default` is the model's own voice, always. Any other name is a stored voice, or else one that
came with the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cosyserve.contracts import Voice
from cosyserve.errors import MissingVoiceError
from cosyserve.voices.store import DEFAULT, VoiceStore


class VoiceLibrary:
    def __init__(self, store: VoiceStore, shipped: Callable[[], Mapping[str, Voice]]) -> None:
        """`shipped`: the model's own voices, `default` among them."""
        self.store = store
        self._shipped = shipped

    def names(self) -> dict[str, bool]:
        """All names, each with whether it means a voice of the model's."""
        stored = set(self.store.names())
        return {name: name not in stored for name in sorted(stored | self._shipped().keys())}

    def get(self, name: str) -> Voice:
        shipped = self._shipped()
        if name == DEFAULT:
            return shipped[DEFAULT]
        try:
            return self.store.get(name)
        except MissingVoiceError:
            if name not in shipped:
                raise
            return shipped[name]

    def is_shipped(self, name: str, voice: Voice) -> bool:
        """Whether `get` found the voice with the model."""
        return self._shipped().get(name) is voice
