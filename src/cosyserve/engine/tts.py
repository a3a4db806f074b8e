"""The Python API: load a model, make voices, speak.

Knows no server. One call at a time; for many at once there is the server.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cosyserve.audio import decode
from cosyserve.contracts import (
    MAX_PROMPT_SECONDS,
    AudioChunk,
    Floats,
    InputError,
    Mode,
    SpeechRequest,
    Voice,
)
from cosyserve.engine.speak import speak
from cosyserve.models import model as models
from cosyserve.models import shipped, testmodel
from cosyserve.voices.enroll import enroll
from cosyserve.voices.file import load_voice

log = logging.getLogger(__name__)

# oneDNN computes a CPU's convolutions and keeps what it compiled for each length, of 1024 unless
# told. An utterance has 73 and its last length seldom comes again: this many hold the lengths that
# every stream begins with; more would only take memory, and break up what lies between.
CONVOLUTIONS = "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "256"


class TTS:
    """A loaded model that speaks."""

    def __init__(self, model: models.Model) -> None:
        self.model = model

    def voice(
        self, audio: str | Path | bytes, text: str = "", *, name: str = "", consent: str = ""
    ) -> Voice:
        """Learns a voice from 3 to 30 s of audio; `text` is what is said in it."""
        recording = decode(audio, max_seconds=2 * MAX_PROMPT_SECONDS)
        return enroll(self.model, recording, text, name=name, consent=consent)

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
        shipped = {file.stem: file for file in self.model.voices}
        if shipped:
            return load_voice(shipped.get("default", self.model.voices[0]))
        if self.model.config.speech:
            log.warning("the model brings no voice of its own: this one is nobody's, give a better")
        flow = self.model.config.flow or self.model.need_token2wav()[0].config
        size, mel = flow.speaker, flow.mel
        direction = np.full(size, size**-0.5, np.float32)
        return Voice("", np.zeros(0, np.int32), np.zeros((0, mel), np.float32), direction)


def load(
    model: str | Path = "nano",
    *,
    device: str = "auto",
    dtype: str = "auto",
    only: Collection[str] | None = None,
) -> TTS:
    """A model folder (published or prepared), `nano` (in the package, small, English), or `test`:
    random weights, not speech.

    device: auto, cpu, cuda, cuda:N. dtype of LM and flow: auto (bfloat16 on a GPU, on a CPU as
    stored), float32, bfloat16, float16, int8 (a GPU). `only`: the parts that are needed of a
    prepared folder.
    """
    place = _device(device)
    if place.type == "cpu":
        os.environ.setdefault(*CONVOLUTIONS)
    if str(model) == testmodel.NAME:
        return TTS(models.assemble(testmodel.random_parts(), place))
    if dtype not in ("auto", "float32", "bfloat16", "float16", "int8"):
        raise InputError(f"dtype must be auto, float32, bfloat16, float16 or int8, got {dtype!r}")
    precision = None if dtype == "auto" else getattr(torch, dtype)
    return TTS(models.load(shipped.folder(model), place, precision, only))


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"unknown device {name!r}: use auto, cpu, cuda or cuda:N") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(
            f"device {name} is asked for, but torch sees {torch.cuda.device_count()} CUDA devices"
        )
    return device
