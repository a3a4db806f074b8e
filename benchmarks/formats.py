"""What each audio format costs, and whether the gateway keeps up with streams of it.

    python -m benchmarks.formats [--json FILE]

CPU time of the encoders alone; then listeners, who ask for one stream after another, from a worker
that hums a little faster than is played: 320 of PCM, and 25 a core of each format with a codec, for
200 on eight. Client and worker are on the same cores; `taskset` says which.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

import numpy as np

from benchmarks.figures import Figure, run
from benchmarks.servers import Server, humming
from cosyserve.audio import AudioFormat, Encoder
from cosyserve.audio.formats import CODEC_FORMATS
from cosyserve.contracts import SAMPLE_RATE, TOKENS_PER_SECOND
from cosyserve.gateway.encoding.encoders import cores

SECONDS, ROUNDS = 20, 5  # of speech that the encoders get, and how often
CORES = cores()
PCM_LISTENERS, CODED_LISTENERS = 320, min(25 * CORES, 200)
CHUNKS, CHUNK_TOKENS, FIRST, PACE = 10, 25, 0.05, 0.95
DUE = FIRST + (CHUNKS - 1) * PACE * CHUNK_TOKENS / TOKENS_PER_SECOND  # seconds until the last chunk
TURNS = 2  # of each listener; all of them listen at once between the first and the second
LATE = 0.1  # seconds: a listener notices


def cpu_ms(audio_format: AudioFormat) -> float:
    """CPU time for a second of what is as hard to encode as speech, in chunks of a second."""
    sound = np.random.default_rng(0).normal(0, 0.1, SECONDS * SAMPLE_RATE).astype(np.float32)
    best = float("inf")
    for _ in range(ROUNDS):
        began, encoder = time.thread_time(), Encoder(audio_format)
        for second in np.split(sound, SECONDS):
            encoder.push(second)
        encoder.finish()
        best = min(best, time.thread_time() - began)
    return 1e3 * best / SECONDS


@dataclass(frozen=True)
class Kept:
    """How a stream was kept up with: seconds until its first byte and until its last."""

    first: float
    last: float


async def listen(url: str, audio_format: AudioFormat) -> Kept:
    at = urlsplit(url)
    fields = {"model": "tts-1", "input": "hum", "response_format": audio_format.value}
    body = json.dumps(fields).encode()
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    try:
        began = time.perf_counter()
        head = (
            "POST /v1/audio/speech HTTP/1.1\r\nHost: server\r\nContent-Type: application/json\r\n"
        )
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200"), answer
        first = 0.0
        while size := int(await reader.readline(), 16):
            await reader.readexactly(size + 2)
            first = first or time.perf_counter() - began
        return Kept(first, time.perf_counter() - began)
    finally:
        writer.close()


async def crowd(url: str, audio_format: AudioFormat, listeners: int) -> list[Kept]:
    async def hear(number: int) -> list[Kept]:
        await asyncio.sleep(DUE * number / listeners)  # they come, and their chunks, one by one
        return [await listen(url, audio_format) for _ in range(TURNS)]

    heard = await asyncio.gather(*(hear(number) for number in range(listeners)))
    return [kept for streams in heard for kept in streams]


def cpu_seconds(server: Server) -> float:
    """Of the gateway and of the processes that encode for it."""
    encoders = server.gateway.children("gateway.encoding")
    return sum(process.cpu_seconds for process in (server.gateway, *encoders))


def streams(server: Server, audio_format: AudioFormat) -> list[Figure]:
    coded = audio_format in CODEC_FORMATS
    listeners = CODED_LISTENERS if coded else PCM_LISTENERS
    before = cpu_seconds(server)
    kept = asyncio.run(crowd(server.url, audio_format, listeners))
    used = cpu_seconds(server) - before
    cores = used / (TURNS * DUE)  # while all of them listen
    punctual = sum(one.last - DUE <= LATE for one in kept) / len(kept)
    middle = sorted(one.first for one in kept)[len(kept) // 2] - FIRST
    name = f"{listeners} listeners to {audio_format}"
    detail = f"first byte {1e3 * middle:.1f} ms behind the first chunk (median)"
    return [
        Figure(f"{name}, never late", 100 * punctual, 100.0, "%", at_least=True, detail=detail),
        Figure(f"{name}, gateway", cores, CODED_LISTENERS / 25 if coded else 1.0, "cores"),
    ]


def measure() -> list[Figure]:
    figures = [
        Figure(f"a second of {kind}", cpu_ms(kind), 1e3 * 8 / 200, "ms of CPU")
        for kind in AudioFormat
    ]
    for kind in (AudioFormat.PCM, *sorted(CODEC_FORMATS)):
        with humming(CHUNKS, CHUNK_TOKENS, FIRST, PACE) as server:
            figures += streams(server, kind)
    return figures


if __name__ == "__main__":
    run(measure, __doc__ or "")
