"""A voice travels over a link once: both ends keep the same list of what the far end knows.

They see the same voices in the same order and have the same limit, so they forget the same ones;
neither ever has to ask. Knows no message and no process.
"""

from __future__ import annotations

from dataclasses import replace

from cosyserve.contracts import Voice
from cosyserve.errors import VoiceError
from cosyserve.voices import file as voice_file
from cosyserve.voices.lru import ByteLRU


def voice_key(voice: Voice) -> str:
    """What the engine may tell voices apart by."""
    return "/".join((voice.content_hash, voice.family, voice.fingerprint, voice.name))


def voice_bytes(voice: Voice) -> bytes:
    """What the engine needs of a voice."""
    return voice_file.to_bytes(replace(voice, source=None, source_rate=0))


class SentVoices:
    def __init__(self, cache_bytes: int) -> None:
        self._known: ByteLRU[None] = ByteLRU(cache_bytes)

    def bytes_for(self, voice: Voice) -> bytes | None:
        """What must be sent along now; None: the far end has it."""
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

    def take(self, key: str, data: bytes | None) -> Voice:
        found: Voice | VoiceError | None
        if data is None:
            found = self._kept.get(key)
        else:
            try:
                found = voice_file.from_bytes(data, "request")
            except VoiceError as error:
                found = error
            self._kept.put(key, found, len(data))
        if isinstance(found, Voice):
            return found
        raise found or VoiceError("the voice was forgotten on its way: ask again")
