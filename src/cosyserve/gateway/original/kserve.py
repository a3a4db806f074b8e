"""Route: text to speech as a Triton server is asked over HTTP, by KServe's protocol in JSON.

A Triton server itself answers no such request for a model that streams. Here the original's
`client_http.py` is served by whatever engine there is.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import nullcontext
from typing import Annotated, Any, Literal, get_args

import numpy as np
from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, Field

from cosyserve.audio.features import SPEECH_RATE
from cosyserve.contracts import Engine, Floats, Recording, SpeechRequest, Voice
from cosyserve.errors import AudioError
from cosyserve.gateway.errors import Refusal, invalid_value
from cosyserve.gateway.limits import Limits
from cosyserve.gateway.models import Models
from cosyserve.gateway.original.fields import check_length
from cosyserve.gateway.policy import Policy
from cosyserve.gateway.rates import Rates
from cosyserve.gateway.speech.framing import Usage
from cosyserve.gateway.speech.response import SpeechResponse
from cosyserve.gateway.speech.routes import check_text
from cosyserve.gateway.speech.word_times import WordTimes
from cosyserve.gateway.telemetry.record import Record
from cosyserve.gateway.voices.enrolment import Enrolment
from cosyserve.gateway.voices.known import KnownVoices
from cosyserve.voices.enroll import check_recording
from cosyserve.voices.memory.learned import LearnedVoices
from cosyserve.voices.store import DEFAULT

# The original's speech models, and the families of which they are.
MODELS = {"cosyvoice2": "cosyvoice2", "cosyvoice2_dit": "cosyvoice2", "cosyvoice3": "cosyvoice3"}
InputName = Literal[
    "reference_wav", "reference_wav_len", "reference_text", "target_text", "voice_id"
]


class RequestInput(BaseModel):
    """A tensor; its data may be nested as its shape says, or flat."""

    name: InputName
    datatype: str
    shape: list[int]
    data: list[Any]


class InferRequest(BaseModel):
    inputs: Annotated[list[RequestInput], Field(min_length=1, max_length=len(get_args(InputName)))]


class Output(BaseModel):
    name: Literal["waveform"]
    datatype: Literal["FP32"]
    data: list[float]
    shape: list[int]


class InferResponse(BaseModel):
    model_name: str
    model_version: str
    outputs: list[Output]


ANSWER: dict[int | str, dict[str, Any]] = {
    200: {"model": InferResponse, "description": "The waveform, 24 000 samples a second."}
}


def routes(
    models: Models,
    known: KnownVoices,
    learned: LearnedVoices,
    enrolment: Enrolment,
    limits: Limits,
    rates: Rates,
    policy: Policy,
) -> APIRouter:
    router = APIRouter(tags=["kserve"])

    async def speaker(engine: Engine, inputs: dict[InputName, list[Any]], record: Record) -> Voice:
        model = engine.model
        if "reference_wav" not in inputs:
            return await known.speaker(_text(inputs, "voice_id") or DEFAULT, model)
        samples, text = await asyncio.to_thread(_wave, inputs), _text(inputs, "reference_text")
        check_length(text, "reference_text")
        recording = Recording(samples, SPEECH_RATE, text)
        check_recording(recording)
        return await learned.get(
            *(model.family, model.fingerprint, samples.tobytes(), text),
            learn=lambda: enrolment.embed(engine, recording, record),
        )

    @router.post("/v2/models/{name}/infer", response_class=Response, responses=ANSWER)
    async def infer(
        name: Annotated[str, Path(max_length=200)], body: InferRequest, request: Request
    ) -> Response:
        """Speaks `target_text` in the voice of `reference_wav` (16 kHz), or of a name."""
        family = MODELS.get(name)
        engine = models.of_family(family) if family else models.named(name, policy)
        inputs = {tensor.name: tensor.data for tensor in body.inputs}
        text, record = _text(inputs, "target_text"), request.state.record
        record.characters = len(text)
        check_text(text, limits, "target_text")
        rates.take(record, len(text))
        voice = await speaker(engine, inputs, record)
        speech_request = SpeechRequest(text, voice, voice.mode, lexicon=dict(policy.lexicon))
        return SpeechResponse(
            *(engine, speech_request, KServeFraming(name), record),
            watermark=policy.watermark,
            trim=policy.trim_leading_silence,
        )

    return router


class KServeFraming:
    """Samples as the numbers of a JSON array, as they are made."""

    media_type = "application/json"
    encoder = nullcontext()

    def __init__(self, model: str) -> None:
        head = {"model_name": model, "model_version": "1", "outputs": []}
        output = '{"name": "waveform", "datatype": "FP32", "data": ['
        self._begin = json.dumps(head).removesuffix("]}") + output
        self._count = 0

    async def push(self, samples: Floats) -> bytes:
        return await asyncio.to_thread(self._numbers, samples)

    async def finish(self, reason: str, usage: Usage) -> bytes:
        before = "" if self._count else self._begin
        return f'{before}], "shape": [1, {self._count}]}}]}}'.encode()

    def words(self, times: WordTimes) -> bytes:
        return b""

    def failure(self, refusal: Refusal) -> bytes | None:
        return None

    def _numbers(self, samples: Floats) -> bytes:
        if not np.isfinite(samples).all():
            raise AudioError("samples that are no numbers")
        if not len(samples):
            return b""
        before = ", " if self._count else self._begin
        self._count += len(samples)
        return (before + json.dumps(samples.tolist())[1:-1]).encode()


def _text(inputs: dict[InputName, list[Any]], name: InputName) -> str:
    """The only text of an input; "" when it was not given."""
    value: Any = inputs.get(name, "")
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, str):
        raise invalid_value("one text is expected", [name])
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise invalid_value("half a surrogate pair: send valid Unicode", [name])
    return value


def _wave(inputs: dict[InputName, list[Any]]) -> Floats:
    """The recording, without the silence that clients append to it."""
    try:
        with np.errstate(over="ignore"):
            samples = np.asarray(inputs["reference_wav"], np.float32).reshape(-1)
        lengths = np.asarray(inputs.get("reference_wav_len", [len(samples)]), np.int64).reshape(-1)
    except (ValueError, TypeError, OverflowError) as error:
        raise invalid_value("one row of numbers is expected", ["reference_wav"]) from error
    if len(lengths) != 1 or not 0 < lengths[0] <= len(samples):
        fault = f"one number of 1..{len(samples)}, the samples of reference_wav, is expected"
        raise invalid_value(fault, ["reference_wav_len"])
    return samples[: lengths[0]]
