"""Listeners in a process of their own: what they hear of a server, or of Triton over gRPC.

    python -m benchmarks.gpu.listeners ADDRESS LISTENERS STREAMS SHORTEST LONGEST

Utterances of SHORTEST to LONGEST seconds in four voices are asked for at random, so that LISTENERS
hear one at a time on average; one listener asks for one after another, and as many as there are
streams ask at once. It prints what they heard as JSON.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from urllib.parse import urlsplit

import numpy as np

from cosyserve.bench.playback import Arrival, worst_underrun
from cosyserve.contracts import SAMPLE_RATE, Engine, SpeechRequest
from cosyserve.errors import CosyError

VOICES = 4
TOKENS_PER_LETTER = 5  # of speech, so that a text's length is its speech's

Heard = list[dict[str, float]]
Ask = Callable[[str, str, int], AsyncGenerator[float, None]]  # text, voice, seed -> seconds


def heard_of(address: str, listeners: int, streams: int, shortest: float, longest: float) -> Heard:
    """What a crowd hears: for each stream that did not fail, when it began and where it paused."""
    asked = (address, listeners, streams, shortest, longest)
    command = [sys.executable, "-m", "benchmarks.gpu.listeners", *map(str, asked)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found: Heard = json.loads(done.stdout)
    return found


def summary(heard: Heard, streams: int) -> dict[str, float]:
    if not heard:
        raise CosyError(f"all {streams} streams failed")
    half, late = np.percentile([one["first_ms"] for one in heard], (50, 95)).tolist()
    return {
        "first_audio_p50_ms": half,
        "first_audio_p95_ms": late,
        "c100": sum(one["underrun_s"] <= 0.1 for one in heard) / streams,
        "failures": streams - len(heard),
    }


def over_http(url: str) -> Ask:
    at = urlsplit(url)

    async def ask(text: str, voice: str, seed: int) -> AsyncGenerator[float, None]:
        """Over a connection of its own."""
        fields = {"model": "tts-1", "voice": voice, "input": text, "seed": seed}
        body = json.dumps(fields | {"response_format": "pcm"}).encode()
        reader, writer = await asyncio.open_connection(at.hostname, at.port)
        try:
            head = (
                "POST /v1/audio/speech HTTP/1.1\r\nHost: server\r\n"
                "Content-Type: application/json\r\n"
            )
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            if not answer.startswith(b"HTTP/1.1 200"):
                raise OSError(repr(answer.splitlines()[0]))
            while size := int(await reader.readline(), 16):
                await reader.readexactly(size + 2)
                yield size / 2 / SAMPLE_RATE
        finally:
            writer.close()

    return ask


def over_grpc(engine: Engine) -> Ask:
    async def ask(text: str, voice: str, seed: int) -> AsyncGenerator[float, None]:
        own = engine.model.voices[voice]
        request = SpeechRequest(text, own, own.mode, seed=seed, stream=True)
        async with aclosing(engine.open(request)) as chunks:
            async for chunk in chunks:
                if chunk.samples.size:
                    yield len(chunk.samples) / SAMPLE_RATE

    return ask


async def _listen(ask: Ask, number: int, letters: int, heard: Heard) -> None:
    chance = random.Random(number)
    text = "".join(chance.choice("abcdefgh") for _ in range(letters))
    asked = time.perf_counter()
    try:
        async with aclosing(ask(text, f"voice{number % VOICES}", number)) as pieces:
            arrivals = [Arrival(time.perf_counter() - asked, piece) async for piece in pieces]
    except Exception as error:  # one that fails must not take others along
        sys.stderr.write(f"{error!r}\n")
        return
    heard.append(
        {
            "first_ms": 1e3 * arrivals[0].at,
            "underrun_s": worst_underrun(arrivals),
            "seconds": sum(arrival.seconds for arrival in arrivals),
        }
    )


async def _crowd(ask: Ask, listeners: int, streams: int, shortest: float, longest: float) -> Heard:
    chance = random.Random(0)
    letters_per_second = 25 / TOKENS_PER_LETTER
    lengths = [
        round(letters_per_second * chance.uniform(shortest, longest)) for _ in range(streams)
    ]
    rate = listeners / (sum(lengths) / streams / letters_per_second)
    gaps = (chance.expovariate(rate) if listeners < streams else 0.0 for _ in range(streams))
    times = itertools.accumulate(gaps)
    heard: Heard = []
    if listeners == 1:
        for number, letters in enumerate(lengths):
            await _listen(ask, number, letters, heard)
        return heard
    begun = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for number, (letters, when) in enumerate(zip(lengths, times, strict=True)):
            await asyncio.sleep(max(0.0, begun + when - time.perf_counter()))
            tasks.create_task(_listen(ask, number, letters, heard))
    return heard


@asynccontextmanager
async def _asking(address: str) -> AsyncGenerator[Ask, None]:
    if not address.startswith("triton://"):
        yield over_http(address)
        return
    from cosyserve.triton.engine import TritonEngine

    engine = TritonEngine.of(address)
    try:
        await engine.start()
        yield over_grpc(engine)
    finally:
        await engine.close()


async def main(address: str, listeners: str, streams: str, *seconds: str) -> None:
    shortest, longest = map(float, seconds)
    async with _asking(address) as ask:
        heard = await _crowd(ask, int(listeners), int(streams), shortest, longest)
    sys.stdout.write(json.dumps(heard))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
