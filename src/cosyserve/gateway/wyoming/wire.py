"""Events of a Wyoming client, read within limits.

An event is a line of JSON with the lengths of what follows it: more JSON, then bytes.
"""

from __future__ import annotations

from asyncio import IncompleteReadError, StreamReader
from typing import Any

from pydantic_core import from_json
from wyoming.event import Event

from cosyserve.gateway.errors import ClientLeft, Refusal

MAX_LINE = 1 << 16  # bytes
CHARACTER_BYTES = 16  # at most, of a character in JSON, and of all that is around a text


async def read_event(reader: StreamReader, max_characters: int) -> Event:
    """The next event, with a text of at most `max_characters`; raises ClientLeft, or a Refusal
    after which nothing can be read."""
    try:
        line = await reader.readline()
        if not line:
            raise ClientLeft
        head = _object(from_json(line))
        data = _object(head.get("data") or {})
        if size := _length(head, "data_length", max(MAX_LINE, CHARACTER_BYTES * max_characters)):
            data = data | _object(from_json(await reader.readexactly(size)))
        _length(head, "payload_length", 0)  # is audio, which nobody sends to have a text spoken
        return Event(str(head["type"]), data)
    except (IncompleteReadError, OSError) as error:
        raise ClientLeft from error
    except (ValueError, TypeError, KeyError) as error:
        raise Refusal(400, f"this is no Wyoming event: {error!s:.200}", "invalid_event") from error


def text_of(event: Event) -> str:
    text = event.data.get("text")
    if not isinstance(text, str):
        raise Refusal(400, f"'{event.type:.80}' needs a text", "invalid_value", param="text")
    return text


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("an object is expected")
    return value


def _length(head: dict[str, Any], name: str, limit: int) -> int:
    length = head.get(name) or 0
    if not isinstance(length, int) or not 0 <= length <= limit:
        raise ValueError(f"{name} must be 0..{limit}")
    return length
