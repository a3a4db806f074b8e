"""The Python API: load a model, make voices, speak.

One call at a time; for many at once there are the server and `LocalEngine`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Unpack

import numpy as np

from cosyserve.audio import decode
from cosyserve.checkpoints.load import SHIPPED, load_model
from cosyserve.checkpoints.model import Model
from cosyserve.contracts import (
    MAX_PROMPT_SECONDS,
    SAMPLE_RATE,
    AudioChunk,
    Floats,
    Recording,
    SpeechOptions,
    SpeechRequest,
    Voice,
)
from cosyserve.engine.compute.token2wav import Token2Wav
from cosyserve.engine.scheduling.start import token2wavs_of
from cosyserve.engine.speak import speak
from cosyserve.errors import InputError, VoiceError
from cosyserve.malloc import return_freed_memory
from cosyserve.voices.enroll import enroll
from cosyserve.voices.library import NO_VOICE
from cosyserve.voices.shipped import describe
from cosyserve.voices.store import DEFAULT

RETURN_AFTER = 5 * SAMPLE_RATE  # samples of speech, until freed memory goes back to the system


class TTS:
    """A loaded model that speaks."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._unreturned = 0  # samples since memory was given back

    def voice(
        self,
        audio: str | Path | bytes,
        text: str = "",
        *,
        name: str = "",
        language: str = "",
        consent: str = "",
    ) -> Voice:
        """Learns a voice from 3 to 30 s of audio; `text` is what is said in it."""
        heard = decode(audio, max_seconds=2 * MAX_PROMPT_SECONDS)
        recording = Recording(
            heard.samples, heard.rate, text, name=name, language=language, consent=consent
        )
        return enroll(self.model, recording)

    def say(
        self, text: str, voice: Voice | None = None, **options: Unpack[SpeechOptions]
    ) -> Floats:
        """The whole speech: float32 samples at 24 kHz."""
        options["stream"] = False
        return np.concatenate([chunk.samples for chunk in self.utter(text, voice, **options)])

    def stream(
        self,
        text: str | Iterator[str],
        voice: Voice | None = None,
        **options: Unpack[SpeechOptions],
    ) -> Iterator[AudioChunk]:
        """Speech as it is computed; `text` may arrive piece by piece."""
        options["stream"] = True
        return self.utter(text, voice, **options)

    def utter(
        self,
        text: str | Iterator[str],
        voice: Voice | None = None,
        **options: Unpack[SpeechOptions],
    ) -> Iterator[AudioChunk]:
        """Speech in chunks; without `stream` one per sentence group. The mode is what the voice
        allows unless it is given."""
        unknown = options.keys() - SpeechOptions.__annotations__.keys()
        if unknown:
            names = ", ".join(SpeechOptions.__annotations__)
            raise InputError(f"unknown option {min(unknown)!r}: there are {names}")
        voice = voice or self.default_voice
        options.setdefault("mode", voice.mode)
        request = SpeechRequest(text=text, voice=voice, **options)
        return self._returning_memory(speak(self.model, request, self._token2wavs))

    def _returning_memory(self, chunks: Iterator[AudioChunk]) -> Iterator[AudioChunk]:
        """The same chunks. Every text has tensors of other sizes, and the C library would keep what
        lies between them; giving it back takes 2 % more CPU time."""
        for chunk in chunks:
            self._unreturned += len(chunk.samples)
            if self._unreturned > RETURN_AFTER:
                self._unreturned = 0
                return_freed_memory()
            yield chunk

    @cached_property
    def _token2wavs(self) -> list[Token2Wav]:
        """Kept on a CPU, with what they know of voices. On a GPU each call has its own: static
        buffers are one call's at a time."""
        return token2wavs_of(self.model, slots=1) if self.model.device.type == "cpu" else []

    @property
    def default_voice(self) -> Voice:
        """The model's own voice named `default`, or its first one."""
        voices = describe(self.model).voices
        if DEFAULT not in voices:
            raise VoiceError(NO_VOICE)
        return voices[DEFAULT]


def load(model: str | Path = SHIPPED, *, device: str = "auto", dtype: str = "auto") -> TTS:
    """A model folder (published or prepared), `nano` (in the package, small, English), or `test`:
    random weights, not speech.

    device: auto, cpu, cuda, cuda:N. dtype of LM and flow: auto (bfloat16 on a GPU, on a CPU as
    stored), float32, bfloat16, float16, int8 (a GPU).
    """
    return TTS(load_model(model, device=device, dtype=dtype))
