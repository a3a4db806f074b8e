"""A voice travels over a link once: both ends keep the same list of what the far end knows.

They see the same voices in the same order and have the same limit, so they forget the same ones,
and neither ever has to ask.
"""

from __future__ import annotations

from dataclasses import replace

from cosyserve.contracts import Voice
from cosyserve.errors import VoiceError
from cosyserve.voices import file as voice_file
from cosyserve.voices.memory.lru import IDLE_SECONDS, ByteLRU


def voice_key(voice: Voice) -> str:
    """The key by which an engine tells voices apart."""
    return "/".join((voice.content_hash, voice.family, voice.fingerprint, voice.name))


def voice_bytes(voice: Voice) -> bytes:
    """The voice as a file, without what an engine doesn't need."""
    return voice_file.to_bytes(replace(voice, source=None, source_rate=0))


class SentVoices:
    def __init__(self, cache_bytes: int) -> None:
        self._known: ByteLRU[None] = ByteLRU(cache_bytes)

    def forget_idle(self) -> list[str]:
        """Counts as forgotten what was not used for a while -> keys that the far end must forget,
        before it is asked for anything else."""
        return self._known.remove_idle(IDLE_SECONDS)

    def bytes_for(self, voice: Voice) -> bytes | None:
        """The bytes to send along with a request; None: the far end has them."""
        key = voice_key(voice)
        if key in self._known:
            self._known.get(key)
            return None
        data = voice_bytes(voice)
        self._known.put(key, None, len(data))
        return data


class ReceivedVoices:
    def __init__(self, cache_bytes: int) -> None:
        # A voice that can't be read is kept as its error: the sender counts it as known, too.
        self._kept: ByteLRU[Voice | VoiceError] = ByteLRU(cache_bytes)

    def forget(self, key: str) -> None:
        self._kept.remove(key)

    def take(self, key: str, data: bytes | None) -> Voice:
        voice: Voice | VoiceError | None
        if data is None:
            voice = self._kept.get(key)
        else:
            try:
                voice = voice_file.from_bytes(data, "request")
            except VoiceError as error:
                voice = error
            self._kept.put(key, voice, len(data))
        if isinstance(voice, Voice):
            return voice
        raise voice or VoiceError("the voice was forgotten on its way: ask again")
