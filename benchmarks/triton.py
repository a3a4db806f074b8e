"""What Triton costs: a rendered repository on a real tritonserver against the engine in process.

    python -m benchmarks.triton [--model test] [--rounds 3] [--requests 16] [--threads 1]

Both speak the same requests in turns. First audio with one client: what the models' joining adds.
Audio seconds per second with eight clients: how much of the engine's throughput is left.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from cosyserve.contracts import SAMPLE_RATE, Mode, SpeechRequest
from cosyserve.deploy.triton_repository import render
from cosyserve.deploy.triton_settings import TritonSettings
from cosyserve.engine.local import LocalEngine
from cosyserve.engine.tts import load
from cosyserve.triton import tensors
from cosyserve.triton.client import TritonClient
from cosyserve.triton.options import packed
from cosyserve.triton.process import Ports, TritonProcess

TEXT = "The quick brown fox jumps over the lazy dog, and number {} does so as well."
CLIENTS = 8
MOST_ADDED_MS, LEAST_KEPT = 8.0, 0.85


@dataclass(frozen=True)
class Heard:
    first: float  # seconds until the first audio
    audio: float  # seconds of it


Speaker = Callable[[SpeechRequest], "asyncio.Future[Heard]"]


async def in_process(engine: LocalEngine, request: SpeechRequest) -> Heard:
    begun, first, samples = time.perf_counter(), 0.0, 0
    async with aclosing(engine.open(request)) as chunks:
        async for chunk in chunks:
            first = first or time.perf_counter() - begun
            samples += len(chunk.samples)
    return Heard(first, samples / SAMPLE_RATE)


async def over_triton(client: TritonClient, request: SpeechRequest) -> Heard:
    assert isinstance(request.text, str)
    inputs = {"target_text": tensors.text(request.text), "options": tensors.text(packed(request))}
    begun, first, samples = time.perf_counter(), 0.0, 0
    limits = {"first_seconds": 120.0, "between_seconds": 120.0}
    async with aclosing(client.stream("cosyvoice2", inputs, **limits)) as answers:
        async for answer in answers:
            first = first or time.perf_counter() - begun
            samples += answer["waveform"].size
    return Heard(first, samples / SAMPLE_RATE)


async def alone(speak: Speaker, requests: list[SpeechRequest]) -> float:
    """The median first audio, in seconds."""
    return statistics.median([(await speak(request)).first for request in requests])


async def together(speak: Speaker, requests: list[SpeechRequest]) -> float:
    """Audio seconds per second with eight clients."""
    gate = asyncio.Semaphore(CLIENTS)

    async def one(request: SpeechRequest) -> float:
        async with gate:
            return (await speak(request)).audio

    begun = time.perf_counter()
    audio = await asyncio.gather(*(one(request) for request in requests))
    return sum(audio) / (time.perf_counter() - begun)


async def measure(options: argparse.Namespace, grpc: str) -> Table:
    torch.set_num_threads(options.threads)
    engine = LocalEngine(load(options.model).model, slots=CLIENTS)
    client = TritonClient(grpc)
    voice = engine.model.voices["default"]
    mode = Mode.ZERO_SHOT if voice.prompt_text else Mode.PRESET
    requests = [
        SpeechRequest(TEXT.format(n), voice, mode, seed=n, stream=True)
        for n in range(options.requests)
    ]

    def here(request: SpeechRequest) -> asyncio.Future[Heard]:
        return asyncio.ensure_future(in_process(engine, request))

    def there(request: SpeechRequest) -> asyncio.Future[Heard]:
        return asyncio.ensure_future(over_triton(client, request))

    for speak in (here, there):  # what the first requests pay is nobody's usual cost
        await together(speak, requests[:CLIENTS])
    firsts, rates = [], []
    for _ in range(options.rounds):
        firsts.append([await alone(speak, requests) for speak in (here, there)])
        rates.append([await together(speak, requests) for speak in (here, there)])
    await client.close()
    await engine.close()
    first, rate = np.median(firsts, axis=0), np.median(rates, axis=0)
    added = float(np.median([b - a for a, b in firsts])) * 1000
    kept = float(np.median([b / a for a, b in rates]))
    table = Table("", "in process", "Triton", "", "goal", title=f"{options.model}, medians")
    table.add_row(
        "first audio, 1 client",
        *(f"{value * 1000:.1f} ms" for value in first),
        f"+{added:.1f} ms",
        f"at most +{MOST_ADDED_MS:.0f} ms",
    )
    table.add_row(
        f"audio s/s, {CLIENTS} clients",
        *(f"{value:.2f}" for value in rate),
        f"{kept:.0%}",
        f"at least {LEAST_KEPT:.0%}",
    )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="test", help="a folder of `cosyserve prepare`, or test")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1, help="of every process")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        repository, ports = Path(folder) / "repository", Ports.free()
        given = (f"slots={CLIENTS}", f"threads={options.threads}", f"grpc=localhost:{ports.grpc}")
        render(TritonSettings.of(given, model_dir=options.model), repository)
        with TritonProcess(repository, ports) as server:
            server.wait_ready()
            table = asyncio.run(measure(options, f"localhost:{server.ports.grpc}"))
    Console().print(table)


if __name__ == "__main__":
    main()
