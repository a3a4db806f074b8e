"""Text in pieces as one request per sentence, before an engine that may be full."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import numpy as np
import pytest

from cosyserve.contracts import AudioChunk, Mode, SpeechRequest
from cosyserve.engine import text_stream
from cosyserve.errors import OverloadError
from tests.engine.mocks import request as mock_request


class Busy:
    """Refuses the requests of these numbers."""

    def __init__(self, refused: set[int]) -> None:
        self.refused, self.asked = refused, [""]

    async def speak(self, request: SpeechRequest) -> AsyncGenerator[AudioChunk, None]:
        assert isinstance(request.text, str)
        self.asked.append(request.text)
        if len(self.asked) - 1 in self.refused:
            raise OverloadError("full", 0.01)
        yield AudioChunk(np.ones(240, np.float32), 0, 0.0, 1, "stop", 3)


async def pieces() -> AsyncIterator[str]:
    for piece in ("This is the first sentence. ", "And this is the second one."):
        yield piece


def heard(busy: Busy) -> list[AudioChunk]:
    voice = mock_request("a", 1).voice
    request = SpeechRequest(pieces(), voice, Mode.PRESET, seed=1, stream=True)

    async def listen() -> list[AudioChunk]:
        opened = text_stream.opened(request, busy.speak, takes_pieces=False)
        return [chunk async for chunk in opened]

    return asyncio.run(listen())


def test_a_later_sentence_waits_for_a_place() -> None:
    busy = Busy({2, 3})
    chunks = heard(busy)
    assert [chunk.index for chunk in chunks] == [0, 1, 2]
    assert chunks[-1].finish == "stop"
    assert sum(chunk.text_tokens for chunk in chunks) == 6
    assert len(set(busy.asked[2:])) == 1
    assert len(busy.asked) == 5


def test_a_first_sentence_is_refused_at_once() -> None:
    busy = Busy({1})
    with pytest.raises(OverloadError):
        heard(busy)
    assert len(busy.asked) == 2


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_stream, "QUEUE_SECONDS", 0.05)
    busy = Busy(set(range(2, 100)))
    with pytest.raises(OverloadError):
        heard(busy)
    assert 3 < len(busy.asked) < 10
