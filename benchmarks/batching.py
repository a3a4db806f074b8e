"""What batching pays: the LM at full size, and whole speech with the small voice.

    python -m benchmarks.batching [--json FILE]

The LM runner decodes with 1 and with 8 sessions in turns, the quickest step of each counts; then 1
and 8 streams are spoken in turns through an engine in this process.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import dataclass

import torch

from benchmarks.figures import Figure, run
from benchmarks.small_voice import small_voice
from cosyserve.checkpoints.model import assemble
from cosyserve.contracts import SAMPLE_RATE, Mode, Sampling, SpeechRequest
from cosyserve.engine.compute.generation import Generation, WholeText
from cosyserve.engine.compute.lm_runner import LMRunner
from cosyserve.engine.in_process import LocalEngine
from cosyserve.models.config import LMConfig
from cosyserve.models.lm.lm import SpeechLM

MANY = 8
PROMPT = 100  # positions before the first token
STEPS = 30
ROUNDS = 3
TEXT = "The quick brown fox jumps over the lazy dog, and nobody knows what the dog thinks of it."
THREADS = 2


def lm_ratio(dtype: torch.dtype) -> Figure:
    config = LMConfig()
    with torch.device("meta"):
        lm = SpeechLM(config)
    lm = lm.to_empty(device="cpu").to(dtype)
    for parameter in lm.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    lm = lm.eval().requires_grad_(False)

    def runner(sessions: int) -> LMRunner:
        made = LMRunner(lm, sessions, 512)
        for seed in range(sessions):
            text = WholeText(config, [config.sos] * PROMPT, 10_000)
            made.join(Generation(text, seed, Sampling(), 10_000))
        while any(not row.tokens for row in made.rows):
            made.step()
        return made

    runners = {sessions: runner(sessions) for sessions in (1, MANY)}
    steps: dict[int, list[float]] = {1: [], MANY: []}
    for _ in range(STEPS):
        for sessions, runs in runners.items():
            begun = time.perf_counter()
            runs.step()
            steps[sessions].append(time.perf_counter() - begun)
    one, many = (sessions / min(steps[sessions]) for sessions in (1, MANY))
    kind = str(dtype).removeprefix("torch.")
    detail = f"{one:.1f} and {many:.1f} tokens/s"
    return Figure(f"LM, {MANY} sessions / 1, {kind}", many / one, 4.0, at_least=True, detail=detail)


@dataclass(frozen=True)
class Heard:
    first: float
    seconds: float
    worst_wait: float


async def listen(engine: LocalEngine, seed: int) -> Heard:
    voice = engine.model.voices["default"]
    begun = last = time.perf_counter()
    first = seconds = worst = 0.0
    request = SpeechRequest(TEXT, voice, Mode.PRESET, seed=seed, stream=True)
    async for chunk in engine.open(request):
        now = time.perf_counter()
        first = first or now - begun
        worst, last = max(worst, now - last), now
        seconds += len(chunk.samples) / SAMPLE_RATE
    return Heard(first, seconds, worst)


async def end_to_end() -> list[Figure]:
    engine = LocalEngine(assemble(small_voice()), slots=MANY)
    await listen(engine, 99)
    speeds: dict[int, list[float]] = {1: [], MANY: []}
    heard: dict[int, list[Heard]] = {1: [], MANY: []}
    for round_ in range(ROUNDS):
        for streams in (1, MANY):
            begun = time.perf_counter()
            seeds = range(round_ * MANY, round_ * MANY + streams)
            found = await asyncio.gather(*(listen(engine, seed) for seed in seeds))
            took = time.perf_counter() - begun
            speeds[streams].append(sum(one.seconds for one in found) / took)
            heard[streams] += found
    await engine.close()
    one, many = (statistics.median(speeds[n]) for n in (1, MANY))
    alone = statistics.median(h.first for h in heard[1])
    p95 = statistics.quantiles([h.first for h in heard[MANY]], n=20)[-1]
    longest = max(h.worst_wait for h in heard[MANY])
    usual = statistics.median(h.worst_wait for h in heard[MANY])
    return [
        Figure(
            f"audio seconds per second, {MANY} streams / 1",
            many / one,
            1.2,
            at_least=True,
            detail=f"{one:.2f} and {many:.2f}",
        ),
        Figure(
            f"first audio, p95 of {MANY} streams / 1",
            p95 / alone,
            8.0,
            detail=f"{1e3 * alone:.0f} and {1e3 * p95:.0f} ms",
        ),
        Figure(
            "longest wait of a stream / the usual stream's",
            longest / usual,
            3.0,
            detail=f"{1e3 * usual:.0f} and {1e3 * longest:.0f} ms: none is starved",
        ),
    ]


def measure() -> list[Figure]:
    torch.set_num_threads(THREADS)
    with torch.inference_mode():
        lm = [lm_ratio(torch.float32), lm_ratio(torch.bfloat16)]
    return lm + asyncio.run(end_to_end())


if __name__ == "__main__":
    run(measure, __doc__ or "")
