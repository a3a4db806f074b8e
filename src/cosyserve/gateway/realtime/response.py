"""One response of a Realtime session: an utterance, told in OpenAI's events."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from cosyserve.gateway.connection.events import DoneEvent, ErrorEvent, ServerEvent, StartedEvent
from cosyserve.gateway.errors import ErrorBody
from cosyserve.gateway.realtime.session import RealtimeSession
from cosyserve.gateway.speech.framing import Usage

Event = dict[str, Any]
STATUSES = {
    "stop": "completed",
    "length": "incomplete",
    "early": "incomplete",
    "cancelled": "cancelled",
}
REASONS = {"length": "max_output_tokens", "cancelled": "client_cancelled"}  # OpenAI has no "early"


def event(kind: str, **fields: Any) -> Event:
    return {"type": kind, "event_id": new_id("event"), **fields}


def error_event(error: ErrorBody, cause: str | None) -> Event:
    """`cause` is the client's id of the event that the error is about."""
    return event("error", error=error.model_dump() | {"event_id": cause})


def new_id(kind: str) -> str:
    return f"{kind}_{uuid4().hex}"


class RealtimeResponse:
    """What an utterance says, in the order in which clients expect to hear it."""

    def __init__(
        self,
        session: RealtimeSession,
        text: str,
        conversation: str | None,
        metadata: dict[str, str] | None,
        cause: str | None,
    ) -> None:
        """`conversation`: the id of the conversation that it belongs to, if any; `cause`: the
        client's id of the event that asked for it."""
        self.id = new_id("resp")
        self._item_id = new_id("item")
        self._session = session
        self._text = text
        self._conversation = conversation
        self._metadata = metadata
        self._cause = cause
        self._created = False

    def tell(self, item: ServerEvent | bytes) -> Iterator[Event]:
        """The events that tell the client what its utterance says."""
        match item:
            case bytes():
                if item:
                    yield self._part("output_audio.delta", delta=base64.b64encode(item).decode())
            case StartedEvent():
                yield from self._create()
            case DoneEvent(finish_reason=reason):
                yield from self._create()
                yield from self._end(STATUSES[reason], item.usage, reason=REASONS.get(reason))
            case ErrorEvent() if not self._created:
                yield error_event(item.error, self._cause)
            case ErrorEvent():
                error = item.error.model_dump(include={"type", "code", "message"})
                yield from self._end("failed", None, error=error)

    def _create(self) -> Iterator[Event]:
        if self._created:
            return
        self._created = True
        yield event("response.created", response=self._body("in_progress"))
        item = self._item("in_progress")
        yield self._of("output_item.added", item=item)
        if self._conversation:
            yield event("conversation.item.added", previous_item_id=None, item=item)
        yield self._part("content_part.added", part={"type": "audio", "transcript": ""})
        yield self._part("output_audio_transcript.delta", delta=self._text)

    def _end(self, status: str, usage: Usage | None, **why: Any) -> Iterator[Event]:
        item = self._item("completed" if status == "completed" else "incomplete")
        yield self._part("output_audio.done")
        yield self._part("output_audio_transcript.done", transcript=self._text)
        part = {"type": "audio", "transcript": self._text}
        yield self._part("content_part.done", part=part)
        yield self._of("output_item.done", item=item)
        if self._conversation:
            yield event("conversation.item.done", previous_item_id=None, item=item)
        details = None if status == "completed" else {"type": status} | why
        body = self._body(status) | {"status_details": details, "output": [item]}
        if usage:
            body["usage"] = usage.model_dump() | {
                "input_token_details": {"text_tokens": usage.input_tokens, "audio_tokens": 0},
                "output_token_details": {"text_tokens": 0, "audio_tokens": usage.output_tokens},
            }
        yield event("response.done", response=body)

    def _of(self, kind: str, **fields: Any) -> Event:
        return event(f"response.{kind}", response_id=self.id, output_index=0, **fields)

    def _part(self, kind: str, **fields: Any) -> Event:
        return self._of(kind, item_id=self._item_id, content_index=0, **fields)

    def _item(self, status: str) -> dict[str, Any]:
        content = {"type": "output_audio", "transcript": self._text}
        return {
            "id": self._item_id,
            "object": "realtime.item",
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": [] if status == "in_progress" else [content],
        }

    def _body(self, status: str) -> dict[str, Any]:
        output = self._session.output
        return {
            "id": self.id,
            "object": "realtime.response",
            "status": status,
            "status_details": None,
            "conversation_id": self._conversation,
            "output_modalities": ["audio"],
            "audio": {"output": {name: output[name] for name in ("format", "voice")}},
            "metadata": self._metadata,
            "output": [],
            "usage": None,
        }
