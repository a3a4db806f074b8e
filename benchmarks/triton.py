"""What Triton costs: a rendered repository on a real tritonserver against the engine in process.

    python -m benchmarks.triton [--model test] [--pairs 60] [--rounds 3] [--threads 1]

First audio with one client, what the models' joining adds: both speak one sentence in turns, and
the two of a turn are compared, so that a machine that is now faster, now slower does little harm.
Audio seconds per second with eight clients: how much of the engine's throughput is left.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console
from rich.table import Table

from cosyserve.contracts import SAMPLE_RATE, Mode, SpeechRequest
from cosyserve.deploy.triton.repository import render
from cosyserve.deploy.triton.settings import TritonSettings
from cosyserve.engine.in_process import LocalEngine
from cosyserve.engine.tts import load
from cosyserve.triton import tensors
from cosyserve.triton.client import TritonClient
from cosyserve.triton.options import request_options
from cosyserve.triton.process import Ports, TritonProcess

SENTENCE = "The quick brown fox jumps."
TEXT = "The quick brown fox jumps over the lazy dog, and number {} does so as well."
CLIENTS, REQUESTS = 8, 16
RESAMPLED = 2000
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
    options = json.dumps(request_options(request))
    inputs = {"target_text": tensors.text(request.text), "options": tensors.text(options)}
    begun, first, samples = time.perf_counter(), 0.0, 0
    stream = client.stream("cosyvoice2", inputs, first_seconds=120.0, between_seconds=120.0)
    async with aclosing(stream) as answers:
        async for answer in answers:
            first = first or time.perf_counter() - begun
            samples += answer["waveform"].size
    return Heard(first, samples / SAMPLE_RATE)


async def in_turns(
    here: Speaker, there: Speaker, request: SpeechRequest, pairs: int
) -> npt.NDArray[np.float64]:
    """First audio in ms [pairs, 2]: of either, who begins by turns."""
    found = np.empty((pairs, 2))
    for pair in range(pairs):
        for side in (0, 1) if pair % 2 else (1, 0):
            found[pair, side] = (await (here, there)[side](request)).first * 1000
    return found


def interval(differences: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Where their median lies with a probability of 95 %, by the bootstrap."""
    drawn = np.random.default_rng(0).choice(differences, (RESAMPLED, len(differences)))
    low, high = np.percentile(np.median(drawn, axis=1), (2.5, 97.5))
    return float(low), float(high)


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
        SpeechRequest(TEXT.format(n), voice, mode, seed=n, stream=True) for n in range(REQUESTS)
    ]

    def here(request: SpeechRequest) -> asyncio.Future[Heard]:
        return asyncio.ensure_future(in_process(engine, request))

    def there(request: SpeechRequest) -> asyncio.Future[Heard]:
        return asyncio.ensure_future(over_triton(client, request))

    for speak in (here, there):  # what the first requests pay is nobody's usual cost
        await together(speak, requests)
    sentence = SpeechRequest(SENTENCE, voice, mode, seed=7, stream=True)
    firsts = await in_turns(here, there, sentence, options.pairs)
    rates = [
        [await together(speak, requests) for speak in (here, there)] for _ in range(options.rounds)
    ]
    await client.close()
    await engine.close()
    added = firsts[:, 1] - firsts[:, 0]
    low, high = interval(added)
    first, rate = np.median(firsts, axis=0), np.median(rates, axis=0)
    kept = float(np.median([b / a for a, b in rates]))
    table = Table("", "in process", "Triton", "", "goal", title=f"{options.model}, medians")
    table.add_row(
        f"first audio, 1 client, {options.pairs} pairs",
        *(f"{value:.1f} ms" for value in first),
        f"{np.median(added):+.1f} ms (95 %: {low:+.1f} to {high:+.1f})",
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
    parser.add_argument("--pairs", type=int, default=60, help="of first audios")
    parser.add_argument("--rounds", type=int, default=3, help="with eight clients")
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
