"""The input of a request to token2wav, apart from its tokens."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass

import numpy as np

from cosyserve.audio.features import SPEECH_RATE
from cosyserve.checkpoints.model import Model
from cosyserve.contracts import MAX_SPEED, MIN_SPEED, Recording, Voice
from cosyserve.errors import InputError, VoiceError
from cosyserve.triton.models.instance.async_model import Request
from cosyserve.triton.streams import stream_key
from cosyserve.triton.vocabulary import vocabulary_of
from cosyserve.voices import file as voice_file
from cosyserve.voices.enroll import enroll
from cosyserve.voices.fits import check_fits
from cosyserve.voices.library import NO_VOICE
from cosyserve.voices.memory.learned import LearnedVoices
from cosyserve.voices.shipped import describe
from cosyserve.voices.store import DEFAULT


@dataclass(frozen=True)
class Token2WavInput:
    """How tokens are to sound, and for which listener."""

    voice: Voice
    with_prompt: bool
    seed: int
    speed: float
    session: str
    slack: float  # seconds of audio that the listener still has; negative: nothing was sent yet

    def key(self, tokens: tuple[int, ...]) -> str:
        """The key of a stream whose audio covers these tokens."""
        voice = self.voice.content_hash
        return stream_key(voice, self.seed, self.speed, self.with_prompt, tokens)


class InputReader:
    """Reads the inputs of requests; remembers the voices that came as recordings or as files."""

    def __init__(self, model: Model, cache_bytes: int) -> None:
        self._model = model
        self.vocabulary = vocabulary_of(model.config.family)
        self._default = describe(model).voices.get(DEFAULT)
        self._learned = LearnedVoices(cache_bytes)

    async def read(self, request: Request) -> Token2WavInput:
        parameters = request.parameters
        speed = float(parameters.get("speed", 1.0))
        if not MIN_SPEED <= speed <= MAX_SPEED:
            raise InputError(f"speed must be {MIN_SPEED}..{MAX_SPEED}, got {speed}")
        slack = float(parameters.get("slack", 0 if request.get_int("token_offset", 0) else -1))
        if not math.isfinite(slack):
            raise InputError(f"slack must be seconds of audio, got {slack}")
        return Token2WavInput(
            voice=await self._voice(request),
            with_prompt=bool(parameters.get("with_prompt", True)),
            seed=int(parameters.get("seed", 0)),
            speed=speed,
            session=str(parameters.get("session", "")),
            slack=slack,
        )

    async def _voice(self, request: Request) -> Voice:
        """A voice file, a recording, its features, or else the model's own voice."""
        if (packed := request.array("voice")) is not None:
            data = packed.tobytes()
            return await self._learned.get("voice", data, learn=lambda: self._unpack(data))
        wave = request.wave()
        if wave is not None:
            recording = Recording(wave, SPEECH_RATE)
            return await self._learned.get(
                "recording",
                wave.tobytes(),
                learn=lambda: asyncio.to_thread(enroll, self._model, recording),
            )
        tokens = request.array("prompt_speech_tokens")
        if tokens is None:
            if self._default is None:
                raise VoiceError(NO_VOICE)
            return self._default
        return self._fitting(
            Voice(
                "",
                np.array(self.vocabulary.tokens(tokens.reshape(-1).tolist()), np.int32),
                request.need("prompt_speech_feat").astype(np.float32),
                request.need("prompt_spk_embedding").astype(np.float32).reshape(-1),
                family=self._model.config.family,
            )
        )

    async def _unpack(self, data: bytes) -> Voice:
        return self._fitting(voice_file.from_bytes(data, "voice"))

    def _fitting(self, voice: Voice) -> Voice:
        check_fits(voice, self._model.config.voice_format)
        return voice
