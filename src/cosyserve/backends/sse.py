"""Server-Sent Events out of a stream of bytes. Knows no server and no meaning of an event."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

LONGEST = 1 << 20  # bytes of an event: more is no event of an LLM


async def events(pieces: AsyncIterator[bytes]) -> AsyncGenerator[str, None]:
    """The data of each event; one that is cut off is none. Too long a one is a ValueError."""
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
        if len(rest) + sum(map(len, data)) > LONGEST:
            raise ValueError(f"an event of more than {LONGEST} bytes")
