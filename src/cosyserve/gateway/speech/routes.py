"""The route from text to speech."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute

from cosyserve.audio import MEDIA_TYPES
from cosyserve.gateway.encoding.encoders import Encoders
from cosyserve.gateway.errors import Refusal, invalid_value
from cosyserve.gateway.limits import Limits
from cosyserve.gateway.rates import Rates
from cosyserve.gateway.speech.body import OPENAPI_BODY, SpeechBody, StreamFormat, read_speech
from cosyserve.gateway.speech.framing import Usage, framing_of
from cosyserve.gateway.speech.interpreter import Interpreter
from cosyserve.gateway.speech.outcomes import Outcome, Outcomes
from cosyserve.gateway.speech.response import SpeechResponse

EVENTS = "text/event-stream"
SPEECH: dict[int | str, dict[str, object]] = {
    200: {
        "description": "Audio as it is made, or Server-Sent Events that carry it.",
        "content": {kind: {} for kind in (*MEDIA_TYPES.values(), EVENTS)},
    }
}


class PlainRoute(APIRoute):
    """A route that is handed the request, and nothing that would have to be found out first."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        return self.endpoint


def routes(
    interpreter: Interpreter, limits: Limits, rates: Rates, outcomes: Outcomes, encoders: Encoders
) -> APIRouter:
    router = APIRouter(tags=["speech"], route_class=PlainRoute)

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
        record.characters, record.consent = len(body.input), body.consent
        check_text(body.input, limits, "input")
        rates.take(record, len(body.input))
        stream_format = _stream_format(body, request)
        if body.timestamps and stream_format != "sse":
            raise invalid_value("audio alone has none: add stream_format: 'sse'", ["timestamps"])
        framing = framing_of(stream_format, body.response_format, body.sample_rate, encoders)
        speech_request = await interpreter.request(body, body.input, record)
        key = getattr(request.state, "key", None)

        def ended(finish: str, usage: Usage) -> None:
            outcome = Outcome(request_id=record.request_id, finish_reason=finish, usage=usage)
            outcomes.keep(key, outcome)

        return SpeechResponse(
            interpreter.engine(body.model),
            *(speech_request, framing, record, body.max_new_tokens, ended),
            watermark=interpreter.watermark,
            trim=interpreter.trims(body),
            timestamps=body.timestamps is not None,
        )

    return router


def _stream_format(body: SpeechBody, request: Request) -> StreamFormat:
    """`stream` alone is raw audio, as it is for most servers, unless events are asked for."""
    if body.stream_format is not None:
        return body.stream_format
    wanted = request.headers.get("accept", "")
    return "sse" if body.stream and EVENTS in wanted else "audio"


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
