"""Messages between gateway and worker: all of them arrive whole. Those that are none, of another
version or cut off, end a worker's life and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import fields
from unittest.mock import Mock

import msgspec
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cosyserve.contracts import (
    AudioChunk,
    EngineStats,
    Mode,
    Recording,
    Sampling,
    SpeechOptions,
    SpeechRequest,
    Voice,
)
from cosyserve.engine.workers import client
from cosyserve.engine.workers.client import WorkerEngine
from cosyserve.engine.workers.messages import (
    LENGTH,
    Alive,
    Chunk,
    Embedded,
    EmbedRequest,
    Failed,
    FromWorker,
    Open,
    Stats,
    ToWorker,
    frame,
    from_worker,
    to_worker,
)
from cosyserve.engine.workers.options import WorkerOptions
from cosyserve.errors import (
    CosyError,
    OverloadError,
    VoiceError,
    WorkerError,
)
from tests.engine.mocks import VOICE

SAMPLES = np.zeros(3, np.float32)
SOUND: list[ToWorker | FromWorker] = [
    EmbedRequest(1, Recording(SAMPLES, 24_000, "text")),
    Chunk(2, AudioChunk(SAMPLES, 0, 0.0, 3)),
    Embedded(3, VOICE),
    Failed(4, "InputError", "why"),
    Stats(EngineStats(True, 0, 0)),
    Alive(),
]
bodies = st.sampled_from([frame(message)[LENGTH.size :] for message in SOUND])


@settings(max_examples=300, derandomize=True, database=None, phases=[Phase.generate])
@given(bodies, st.integers(0, 1000), st.integers(0, 4), st.binary(max_size=4))
def test_any_bytes_are_a_message_or_an_error_of_ours(
    body: bytes, place: int, length: int, instead: bytes
) -> None:
    begin = place % len(body)
    torn = body[:begin] + instead + body[begin + length :]
    for decoder in (to_worker, from_worker):
        with suppress(WorkerError):
            decoder.decode(torn)


class Babbler(WorkerEngine):
    name = "babbler"

    def __init__(self, said: bytes) -> None:
        super().__init__(WorkerOptions("test"))
        self.said = said

    @asynccontextmanager
    async def connected(
        self,
    ) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter], None]:
        reader = asyncio.StreamReader()
        reader.feed_data(self.said)
        yield reader, Mock()


@pytest.mark.parametrize("body", [b"", b"nonsense", msgspec.msgpack.encode({"type": "Later"})])
def test_a_worker_that_nobody_understands_has_another_life(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PAUSES", (0.0, 0.0))
    worker = Babbler(LENGTH.pack(len(body)) + body)

    async def start() -> None:
        async with asyncio.timeout(10):
            await worker.start()

    with pytest.raises(WorkerError, match="dies at every start"):
        asyncio.run(start())
    assert worker.stats().restarts == 2


def test_messages_survive_the_journey() -> None:
    asked = SpeechRequest("Hi", VOICE, Mode.INSTRUCT, "Slowly", 0.5, 7, True, False, language="en")
    back = to_worker.decode(frame(Open.of(3, asked, None))[4:])
    assert isinstance(back, Open)
    again = back.request(VOICE)
    assert again.text == "Hi"
    assert (again.mode, again.instruction, again.speed) == (Mode.INSTRUCT, "Slowly", 0.5)
    assert (again.seed, again.stream, again.normalize) == (7, True, False)
    assert again.language == "en"
    chunk = AudioChunk(np.arange(5, dtype=np.float32), 2, 0.5, 9, "stop", 11)
    heard = from_worker.decode(frame(Chunk(1, chunk))[4:]).chunk
    assert np.array_equal(heard.samples, chunk.samples)
    assert (heard.index, heard.tokens, heard.finish, heard.text_tokens) == (2, 9, "stop", 11)


def test_every_error_keeps_its_class_and_what_is_not_known_its_nearest() -> None:
    class LocalError(VoiceError):
        """Only this process knows it."""

    def journey(error: CosyError) -> CosyError:
        return from_worker.decode(frame(Failed.of(1, error))[4:]).error

    for kind in CosyError.kinds.values():
        error = OverloadError("full", 2.5) if kind is OverloadError else kind("why")
        back = journey(error)
        assert (type(back), str(back)) == (kind, str(error))
        assert getattr(back, "retry_after", None) == getattr(error, "retry_after", None)
    assert {"MissingVoiceError", "StoreError", "CheckpointError"} <= CosyError.kinds.keys()
    assert type(journey(LocalError("why"))) is VoiceError


def test_options_of_a_request_travel_whole() -> None:
    """A new field of `SpeechRequest` must be one of `SpeechOptions`, or it is lost on its way."""
    names = {field.name for field in fields(SpeechRequest)}
    assert names == {"text", "voice", *SpeechOptions.__annotations__}
    source = np.ones(16, np.float32)
    asked = SpeechRequest(
        "Hi", VOICE, Mode.CONVERT, source=source, sampling=Sampling(0.5, 3, temperature=0.7)
    )
    back = to_worker.decode(frame(Open.of(3, asked, None))[4:]).request(VOICE)
    assert np.array_equal(back.source, source)
    assert back.sampling == asked.sampling


def test_a_voice_travels_with_its_arrays() -> None:
    voice = Voice(
        prompt_text="Hi",
        speech_tokens=np.arange(3, dtype=np.int32),
        mel=np.ones((6, 80), np.float32),
        embedding=np.ones(4, np.float32),
        name="ann",
    )
    assert voice.content_hash  # what is cached of it does not travel
    back = from_worker.decode(frame(Embedded(1, voice))[4:]).voice
    assert (back.name, back.content_hash) == ("ann", voice.content_hash)
