"""The Python API: load a model, make voices, speak.

Knows no server. One call at a time; for many at once there is the server.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cosyserve.audio import decode
from cosyserve.checkpoints.load import SHIPPED, load_model
from cosyserve.checkpoints.model import Model
from cosyserve.contracts import (
    MAX_PROMPT_SECONDS,
    AudioChunk,
    Floats,
    Mode,
    Recording,
    SpeechRequest,
    Voice,
)
from cosyserve.engine.speak import speak
from cosyserve.errors import InputError
from cosyserve.voices.enroll import enroll
from cosyserve.voices.shipped import default_voice


class TTS:
    """A loaded model that speaks."""

    def __init__(self, model: Model) -> None:
        self.model = model

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

    def say(self, text: str, voice: Voice | None = None, **options: Any) -> Floats:
        """The whole speech: float32 samples at 24 kHz. Options are those of SpeechRequest."""
        chunks = self.utter(text, voice, stream=False, **options)
        return np.concatenate([chunk.samples for chunk in chunks])

    def stream(
        self, text: str | Iterator[str], voice: Voice | None = None, **options: Any
    ) -> Iterator[AudioChunk]:
        """Speech as it is computed; `text` may arrive piece by piece."""
        return self.utter(text, voice, stream=True, **options)

    def utter(
        self, text: str | Iterator[str], voice: Voice | None = None, **options: Any
    ) -> Iterator[AudioChunk]:
        """Speech in chunks; without `stream` one per sentence group. The mode is what the voice
        allows unless said otherwise."""
        voice = voice or self.default_voice
        if not voice.speech_tokens.size:
            options.setdefault("mode", Mode.PRESET)
        elif not voice.prompt_text:
            options.setdefault("mode", Mode.CROSS_LINGUAL)
        try:
            request = SpeechRequest(text=text, voice=voice, **options)
        except TypeError as error:
            raise InputError(f"unknown option: {error}") from error
        return speak(self.model, request)

    @property
    def default_voice(self) -> Voice:
        """The model's own voice named `default`, or its first one, or a neutral preset."""
        return default_voice(self.model)


def load(model: str | Path = SHIPPED, *, device: str = "auto", dtype: str = "auto") -> TTS:
    """A model folder (published or prepared), `nano` (in the package, small, English), or `test`:
    random weights, not speech.

    device: auto, cpu, cuda, cuda:N. dtype of LM and flow: auto (bfloat16 on a GPU, on a CPU as
    stored), float32, bfloat16, float16, int8 (a GPU).
    """
    return TTS(load_model(model, device=device, dtype=dtype))
