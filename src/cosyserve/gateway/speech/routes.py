"""Route: text to speech."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response

from cosyserve.audio import MEDIA_TYPES
from cosyserve.contracts import Engine
from cosyserve.gateway.errors import Refusal
from cosyserve.gateway.limits import Limits
from cosyserve.gateway.speech.body import OPENAPI_BODY, read_speech
from cosyserve.gateway.speech.framing import open_framing
from cosyserve.gateway.speech.interpreter import Interpreter
from cosyserve.gateway.speech.response import SpeechResponse

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
        check_text(body.input, limits, "input")
        framing = await asyncio.to_thread(
            open_framing, body.stream_format, body.response_format, body.sample_rate
        )
        speech_request = await interpreter.request(body, body.input)
        return SpeechResponse(engine, speech_request, framing, record)

    return router


def check_text(text: str, limits: Limits, param: str) -> None:
    """Refuses a text that is too long or empty; `param` is the field that it came in."""
    if len(text) > limits.input_characters:
        raise Refusal(
            400,
            f"{param} has {len(text)} characters; the limit is {limits.input_characters}",
            "input_too_long",
            param=param,
        )
    if not text.strip():
        raise Refusal(400, f"{param} holds nothing to say", "invalid_value", param=param)
