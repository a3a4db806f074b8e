"""Recordings to speech tokens and to speaker embeddings, a batch at a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import triton_python_backend_utils as pb

from cosyserve.audio import whisper_log_mel
from cosyserve.audio.features import SPEECH_RATE
from cosyserve.checkpoints.model import Model
from cosyserve.contracts import Floats, Recording
from cosyserve.triton.models.instance.async_model import Outputs, Request
from cosyserve.triton.models.instance.errors import triton_error
from cosyserve.triton.models.instance.leaving import LeavesAtOnce
from cosyserve.triton.models.instance.loading import load_parts, with_flow_backend
from cosyserve.triton.models.instance.parameters import ModelParameters
from cosyserve.triton.vocabulary import vocabulary_of
from cosyserve.voices.enroll import check_recording, speaker_features


class EncoderModel(LeavesAtOnce):
    """Encodes the batches that Triton gathers; a broken recording fails alone."""

    part: str

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        self.encode = self.encoder(self.load(ModelParameters.of(config)))

    def load(self, settings: dict[str, str]) -> Model:
        return load_parts(settings, self.part)

    def encoder(self, model: Model) -> Callable[[list[Floats]], list[Outputs]]:
        raise NotImplementedError

    def execute(self, requests: list[Any]) -> list[Any]:
        waves: list[Floats | Exception] = [self._wave(request) for request in requests]
        valid = [wave for wave in waves if not isinstance(wave, Exception)]
        try:
            outputs = iter(self.encode(valid) if valid else [])
        except Exception as error:
            return [_error_response(error) for _ in requests]
        return [
            _error_response(wave) if isinstance(wave, Exception) else _response(next(outputs))
            for wave in waves
        ]

    @staticmethod
    def _wave(request: Any) -> Floats | Exception:
        try:
            wave = Request(request).wave()
            assert wave is not None
            check_recording(Recording(wave, SPEECH_RATE))
            return wave
        except Exception as error:
            return error


class AudioTokenizer(EncoderModel):
    part = "speech_tokenizer"

    def encoder(self, model: Model) -> Callable[[list[Floats]], list[Outputs]]:
        tokenizer = model.speech_tokenizer or model.need_prompt_encoders()[0]
        vocabulary = vocabulary_of(model.config.family)

        def encode(waves: list[Floats]) -> list[Outputs]:
            batch = tokenizer.batch([whisper_log_mel(wave) for wave in waves])
            ids = [np.array(vocabulary.ids(tokens.tolist()), np.int32) for tokens in batch]
            return [{"prompt_speech_tokens": row[None]} for row in ids]

        return encode


class SpeakerEmbedding(EncoderModel):
    part = "speaker_encoder"

    def load(self, settings: dict[str, str]) -> Model:
        return with_flow_backend(super().load(settings), settings)

    def encoder(self, model: Model) -> Callable[[list[Floats]], list[Outputs]]:
        speaker = model.speaker_encoder or model.need_prompt_encoders()[1]

        def encode(waves: list[Floats]) -> list[Outputs]:
            embeddings = speaker.batch([speaker_features(model.config, wave) for wave in waves])
            return [
                {"prompt_spk_embedding": row[None].astype(np.float16), "embedding": row[None]}
                for row in embeddings
            ]

        return encode


def _response(outputs: Outputs) -> Any:
    return pb.InferenceResponse([pb.Tensor(name, array) for name, array in outputs.items()])


def _error_response(error: Exception) -> Any:
    return pb.InferenceResponse([], triton_error(error))
