"""Server-Sent Events out of a stream of bytes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

MAX_EVENT_BYTES = 1 << 20  # more is no event of an LLM


async def events(pieces: AsyncIterator[bytes]) -> AsyncGenerator[str, None]:
    """The data of each whole event. An event that is too long is a ValueError."""
    rest, data = b"", list[bytes]()
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            field, _, value = line.rstrip(b"\r").partition(b":")
            if field == b"data":
                data.append(value.removeprefix(b" "))
            elif not line.strip() and data:
                yield b"\n".join(data).decode("utf-8", "replace")
                data = []
        if len(rest) + sum(map(len, data)) > MAX_EVENT_BYTES:
            raise ValueError(f"an event of more than {MAX_EVENT_BYTES} bytes")
