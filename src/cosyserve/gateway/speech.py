"""Route: text to speech. Makes a `SpeechRequest` of what a client sent.

Knows nothing of how the speech travels back (`stream`), nor of what computes it.
"""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response

from cosyserve.audio import MEDIA_TYPES
from cosyserve.contracts import Engine, InputError, Mode, SpeechRequest, Voice
from cosyserve.gateway.errors import Refusal
from cosyserve.gateway.known_voices import KnownVoices
from cosyserve.gateway.limits import Limits
from cosyserve.gateway.references import References
from cosyserve.gateway.requests import OPENAPI_BODY, SpeechBody, read_speech
from cosyserve.gateway.status import check_model
from cosyserve.gateway.stream import SpeechStream
from cosyserve.gateway.wire import open_wire

SPEECH: dict[int | str, dict[str, object]] = {
    200: {
        "description": "Audio as it is made, or Server-Sent Events that carry it.",
        "content": {kind: {} for kind in (*MEDIA_TYPES.values(), "text/event-stream")},
    }
}


def routes(
    engine: Engine, voices: KnownVoices, references: References, limits: Limits
) -> APIRouter:
    router = APIRouter(tags=["speech"])

    @router.post(
        "/v1/audio/speech",
        response_class=Response,
        responses=SPEECH,
        openapi_extra=OPENAPI_BODY,
    )
    async def speech(request: Request) -> Response:
        """Speaks a text."""
        body = await read_speech(request)
        record = request.state.record
        record.characters = len(body.input)
        check_model(engine.model, body.model)
        _check_text(body, limits)
        wire = await asyncio.to_thread(
            open_wire, body.stream_format, body.response_format, body.sample_rate
        )
        spoken = _speech_request(body, await speaker(body))
        return SpeechStream(engine, spoken, wire, record)

    async def speaker(body: SpeechBody) -> Voice:
        if body.reference_audio is None:
            return await voices.speaker(body.voice_name)
        return await references.voice(body.reference_audio, body.reference_text)

    return router


def _check_text(body: SpeechBody, limits: Limits) -> None:
    if len(body.input) > limits.input_characters:
        raise Refusal(
            400,
            f"input has {len(body.input)} characters; the limit is {limits.input_characters}",
            "input_too_long",
            param="input",
        )
    if not body.input.strip():
        raise Refusal(400, "input holds nothing to say", "invalid_value", param="input")


def _speech_request(body: SpeechBody, voice: Voice) -> SpeechRequest:
    return SpeechRequest(
        text=body.input,
        voice=voice,
        mode=_mode(body, voice),
        instruction=body.instructions,
        speed=body.speed,
        seed=body.seed,
        stream=True,
        language=body.language,
    )


def _mode(body: SpeechBody, voice: Voice) -> Mode:
    """What was asked for, else what the fields and the voice allow."""
    if body.reference_text and body.reference_audio is None:
        raise InputError("reference_text is given without reference_audio")
    if body.instructions.strip():
        if body.mode not in (None, Mode.INSTRUCT):
            raise InputError(f"instructions need mode 'instruct', not '{body.mode}'")
        return Mode.INSTRUCT
    if body.mode is not None:
        return body.mode
    if not voice.speech_tokens.size:
        return Mode.PRESET
    return Mode.ZERO_SHOT if voice.prompt_text else Mode.CROSS_LINGUAL
