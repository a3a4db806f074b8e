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


async def read_event(reader: StreamReader, max_bytes: int) -> Event:
    """The next event; raises ClientLeft, or a Refusal after which nothing can be read."""
    try:
        line = await reader.readline()
        if not line:
            raise ClientLeft
        head = _object(line)
        data = head.get("data") or {}
        if size := _length(head, "data_length", max_bytes):
            data = data | _object(await reader.readexactly(size))
        payload = await reader.readexactly(_length(head, "payload_length", max_bytes))
        return Event(str(head["type"]), data, payload)
    except (IncompleteReadError, OSError) as error:
        raise ClientLeft from error
    except (ValueError, TypeError, KeyError) as error:
        raise Refusal(400, f"this is no Wyoming event: {error!s:.200}", "invalid_event") from error


def text_of(event: Event) -> str:
    text = event.data.get("text")
    if not isinstance(text, str):
        raise Refusal(400, f"'{event.type:.80}' needs a text", "invalid_value", param="text")
    return text


def _object(data: bytes) -> dict[str, Any]:
    value = from_json(data)
    if not isinstance(value, dict):
        raise TypeError("an object is expected")
    return value


def _length(head: dict[str, Any], name: str, limit: int) -> int:
    length = head.get(name) or 0
    if not isinstance(length, int) or not 0 <= length <= limit:
        raise ValueError(f"{name} must be 0..{limit}")
    return length
