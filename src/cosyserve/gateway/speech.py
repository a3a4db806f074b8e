"""Route: text to speech."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response

from cosyserve.audio import MEDIA_TYPES
from cosyserve.contracts import Engine
from cosyserve.gateway.errors import Refusal
from cosyserve.gateway.framing import open_framing
from cosyserve.gateway.interpreter import Interpreter
from cosyserve.gateway.limits import Limits
from cosyserve.gateway.requests import OPENAPI_BODY, SpeechBody, read_speech
from cosyserve.gateway.response import SpeechResponse

SPEECH: dict[int | str, dict[str, object]] = {
    200: {
        "description": "Audio as it is made, or Server-Sent Events that carry it.",
        "content": {kind: {} for kind in (*MEDIA_TYPES.values(), "text/event-stream")},
    }
}


def routes(engine: Engine, interpreter: Interpreter, limits: Limits) -> APIRouter:
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
        _check_text(body, limits)
        framing = await asyncio.to_thread(
            open_framing, body.stream_format, body.response_format, body.sample_rate
        )
        speech_request = await interpreter.request(body, body.input)
        return SpeechResponse(engine, speech_request, framing, record)

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
