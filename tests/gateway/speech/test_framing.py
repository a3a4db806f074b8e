"""Framings differ in what is around the bytes of the audio, and in nothing else."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator

import numpy as np
import pytest

from cosyserve.audio import AudioFormat
from cosyserve.gateway.encoding.encoders import Encoders
from cosyserve.gateway.speech.framing import QUICK_BYTES, Framing, Usage, framing_of

SOUND = np.random.default_rng(0).normal(0, 0.1, QUICK_BYTES).astype(np.float32)  # 2 bytes each
NOBODY = Usage(input_tokens=0, output_tokens=0, total_tokens=0)


@pytest.fixture(scope="module")
def encoders() -> Iterator[Encoders]:
    encoders = Encoders()
    yield encoders
    encoders.close()


async def framed(framing: Framing) -> list[bytes]:
    with framing.encoder:
        pushed = [await framing.push(part) for part in (SOUND[:100], SOUND[100:])]
        return [*pushed, await framing.finish("stop", NOBODY)]


@pytest.mark.parametrize("kind", [AudioFormat.PCM, AudioFormat.MP3])
def test_events_carry_the_bytes_of_bare_audio(encoders: Encoders, kind: AudioFormat) -> None:
    raw = asyncio.run(framed(framing_of("audio", kind, None, encoders)))
    events = b"".join(asyncio.run(framed(framing_of("sse", kind, None, encoders))))
    told = [json.loads(line.removeprefix("data: ")) for line in events.decode().split("\n\n")[:-1]]
    carried = [base64.b64decode(event["audio"]) for event in told[:-1]]
    assert carried == [data for data in raw if data]
    assert told[-1]["type"] == "speech.audio.done"
    assert told[-1]["finish_reason"] == "stop"
