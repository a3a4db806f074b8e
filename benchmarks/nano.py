"""What nano costs on this CPU: as it is computed here, beside the plain networks.

    python -m benchmarks.nano [--threads 2] [--sentences 12]

Both take turns, so that they meet the same neighbours on the machine; each finds the caches full of
what the other left. Besides the ratios it prints the time to first audio and the real-time factor
of streamed sentences without the other in between.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import torch
from rich.console import Console
from rich.table import Table

from cosyserve import TTS, load
from cosyserve.contracts import SAMPLE_RATE, Sampling
from cosyserve.engine.compute import token2wav
from cosyserve.engine.compute.generation import Generation, WholeText
from cosyserve.engine.compute.graphs import lm as lm_graphs
from cosyserve.engine.compute.limits import MAX_POSITIONS
from cosyserve.engine.compute.lm_runner import LMRunner
from cosyserve.engine.compute.token2wav import Token2Wav
from cosyserve.models.vocoder import stream
from cosyserve.models.vocoder.host import host_hift

SENTENCES = (
    "Good morning, how may I help you today?",
    "The train to the airport leaves at half past six from platform nine.",
    "Please call Doctor Martinez about the results before the end of the week.",
    "It was the best of times, it was the worst of times.",
)
LM_TOKENS, FIRST_TOKENS, FRAMES = 60, 24, 78


@contextmanager
def plain() -> Iterator[None]:
    """What is made inside computes with the plain networks."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(lm_graphs, "host_lm", lambda lm: None))
        for name in ("host_hift", "incremental_flow"):
            stack.enter_context(patch.object(token2wav, name, lambda part: None))
        yield


def in_turns(runs: list[Callable[[], object]], rounds: int) -> list[float]:
    """Median seconds of each, after one to warm up."""
    times: list[list[float]] = [[] for _ in runs]
    for number in range(rounds + 1):
        for run, found in zip(runs, times, strict=True):
            begun = time.perf_counter()
            run()
            if number:
                found.append(time.perf_counter() - begun)
    return [statistics.median(found) for found in times]


def lm_steps(tts: TTS) -> Callable[[], None]:
    lm, _ = tts.model.need_lm()
    runner = LMRunner(lm, 1, MAX_POSITIONS)

    def run() -> None:
        text = WholeText(lm.config, [lm.config.sos, *range(40), lm.config.task], LM_TOKENS)
        row = Generation(text, 0, Sampling(), LM_TOKENS)
        runner.join(row)
        while row.finish is None:
            runner.step()
        runner.leave(row)

    return run


def first_chunk(tts: TTS) -> Callable[[], None]:
    """Flow and vocoder of a first chunk in a known voice."""
    flow, vocoder = tts.model.need_token2wav()
    both = Token2Wav(flow, vocoder)
    tokens = torch.arange(FIRST_TOKENS + flow.lookahead).tolist()

    def run() -> None:
        state = both.begin(tts.default_voice, with_prompt=True, seed=0, speed=1.0)
        both.advance([state], [tokens], [False])

    return run


def vocoding(tts: TTS, quick: bool) -> Callable[[], None]:
    _, vocoder = tts.model.need_token2wav()
    host, mel = host_hift(vocoder) if quick else None, torch.randn(80, FRAMES)

    def run() -> None:
        stream.advance(vocoder, [stream.begin(vocoder, 0)], [mel], [False], host)

    return run


def listened(tts: TTS, text: str, seed: int) -> tuple[float, float, float]:
    """Seconds to first audio, in all, and of speech."""
    begun, first, samples = time.perf_counter(), 0.0, 0
    for chunk in tts.stream(text, seed=seed):
        first = first or time.perf_counter() - begun
        samples += len(chunk.samples)
    return first, time.perf_counter() - begun, samples / SAMPLE_RATE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sentences", type=int, default=12)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    begun = time.perf_counter()
    quick = load("nano")
    loaded = time.perf_counter() - begun
    with plain():
        before = load("nano")
        list(before.stream(SENTENCES[0]))  # makes what it keeps between calls
        plain_steps, plain_chunk = lm_steps(before), first_chunk(before)
    parts = {
        f"LM, {LM_TOKENS} tokens": (plain_steps, lm_steps(quick)),
        "first chunk of a known voice": (plain_chunk, first_chunk(quick)),
        f"vocoder, {FRAMES} frames": (vocoding(before, quick=False), vocoding(quick, quick=True)),
    }
    table = Table("what", "plain", "here", "ratio", title=f"nano, {options.threads} threads")
    with torch.inference_mode():
        for name, pair in parts.items():
            old, new = in_turns(list(pair), 9)
            table.add_row(name, f"{1e3 * old:.0f} ms", f"{1e3 * new:.0f} ms", f"{new / old:.2f}")
    heard: list[list[tuple[float, float, float]]] = [[], []]
    for number in range(options.sentences):
        text = SENTENCES[number % len(SENTENCES)]
        for which, tts in enumerate((before, quick)):
            with plain() if tts is before else ExitStack():
                heard[which].append(listened(tts, text, number))
    heard.append(
        [
            listened(quick, SENTENCES[number % len(SENTENCES)], number)
            for number in range(options.sentences)
        ]
    )
    *first, alone = (1e3 * statistics.median(one[0] for one in each) for each in heard)
    *factor, own = (sum(one[1] for one in each) / sum(one[2] for one in each) for each in heard)
    table.add_row("first audio", *(f"{ms:.0f} ms" for ms in first), f"{first[1] / first[0]:.2f}")
    table.add_row("real-time factor", *(f"{f:.2f}" for f in factor), f"{factor[1] / factor[0]:.2f}")
    Console().print(table, f"loaded in {loaded:.2f} s")
    Console().print(f"alone: first audio {alone:.0f} ms, real-time factor {own:.2f}")


if __name__ == "__main__":
    main()
