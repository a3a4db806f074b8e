"""Speech through the engine in this process: first audio, real-time factor, crowds, whole texts."""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import dataclass, field
from functools import cache

import torch

from benchmarks.gpu.bench import PROMPT_POSITIONS, PROMPT_TOKENS, TOKENS, Bench, percentile
from cosyserve.contracts import SAMPLE_RATE, AudioChunk, Mode, Sampling, SpeechRequest
from cosyserve.engine.compute.generation import Generation, WholeText
from cosyserve.engine.compute.hops import hop_ends
from cosyserve.engine.compute.profile import THROUGHPUT
from cosyserve.engine.compute.token2wav import Token2Wav
from cosyserve.engine.scheduling.session import AudioSink, Session, Utterance
from cosyserve.errors import CosyError
from cosyserve.models.config import FlowConfig


@dataclass
class Heard:
    """Of one stream: when it was asked for, and what came when."""

    asked: float
    arrivals: list[tuple[float, float]] = field(default_factory=list)  # seconds, of audio
    errors: list[CosyError] = field(default_factory=list)

    def __call__(self, item: AudioChunk | CosyError) -> None:
        if isinstance(item, CosyError):
            self.errors.append(item)
        else:
            self.arrivals.append((time.perf_counter(), len(item.samples) / SAMPLE_RATE))

    @property
    def first_ms(self) -> float:
        return 1e3 * (self.arrivals[0][0] - self.asked)

    @property
    def seconds(self) -> float:
        return sum(seconds for _, seconds in self.arrivals)

    @property
    def underrun(self) -> float:
        """The longest silence of a listener who starts with the first chunk."""
        worst, silent_from = 0.0, self.arrivals[0][0]
        for at, seconds in self.arrivals:
            worst = max(worst, at - silent_from)
            silent_from = max(silent_from, at) + seconds
        return worst


class Crowd:
    """A warm scheduler that this thread drives; every utterance has the same length. One profile
    for all figures: with one stream they differ in the length of the second hop only."""

    def __init__(self, bench: Bench) -> None:
        from cosyserve.engine.compute.lm_runner import LMRunner
        from cosyserve.engine.scheduling.scheduler import Scheduler
        from cosyserve.text.numbers import Reader

        self.bench, self.tokens = bench, bench.few(TOKENS, 40)
        profile, slots = THROUGHPUT, bench.few(THROUGHPUT.slots, 4)
        begun = time.perf_counter()
        runner = LMRunner(bench.lm, slots, 1024)
        self.token2wav = token2wav = Token2Wav(
            bench.flow, bench.vocoder, profile.rows, profile.hop, profile.whole_batches
        )
        config = bench.lm.config

        def plan(request: SpeechRequest, read: Reader, device: int) -> list[Utterance]:
            def generate(attempt: int) -> Generation:
                prompt = [config.sos] * PROMPT_POSITIONS
                text = WholeText(config, prompt, 10_000)
                return Generation(text, request.seed + attempt, Sampling(), self.tokens)

            state = token2wav.begin(request.voice, with_prompt=True, seed=0, speed=1.0)
            utterance = Utterance(generate, state, stream=request.stream)
            utterance.begin(1)  # of forced length: a first attempt would be drawn once more
            return [utterance]

        self.scheduler = Scheduler(
            runner, [token2wav], plan, slots=slots, max_waiting=10_000, max_wait=1e9
        )
        self.scheduler.warm_up()
        bench.sync()
        self.warmed_up = time.perf_counter() - begun

    def open(self, seed: int, *, stream: bool = True) -> Heard:
        heard = Heard(time.perf_counter())
        self.session(seed, heard, stream=stream)
        return heard

    def session(self, seed: int, sink: AudioSink, *, stream: bool = True) -> Session:
        request = SpeechRequest("", self.bench.voice, Mode.ZERO_SHOT, seed=seed, stream=stream)
        return self.scheduler.open(request, sink)

    def rest(self) -> None:
        while self.scheduler.step():
            pass
        self.scheduler.check_idle()

    def seconds(self, concurrency: float, streams: int) -> float:
        """Until so many streams have come, and been heard."""
        return streams * self.tokens / (25 * concurrency) + 10

    def poisson(self, concurrency: float, streams: int) -> list[Heard]:
        """Streams that come at random, so many that this many listeners hear one at a time."""
        chance = random.Random(0)
        rate = concurrency * 25 / self.tokens  # per second
        gaps = (chance.expovariate(rate) for _ in range(streams))
        times = list(itertools.accumulate(gaps))
        begun = time.perf_counter()
        heard: list[Heard] = []
        while len(heard) < streams or not self.scheduler.idle:
            while len(heard) < streams and time.perf_counter() - begun >= times[len(heard)]:
                heard.append(self.open(len(heard)))
                heard[-1].asked = begun + times[len(heard) - 1]  # however late it was noticed
            if not self.scheduler.step():
                time.sleep(2e-4)
        return heard


@cache
def crowd_of(bench: Bench) -> Crowd:
    """Warmed up once."""
    return Crowd(bench)


def first_tokens(config: FlowConfig) -> int:
    """Of the first chunk behind the voice's prompt, look-ahead included."""
    return next(hop_ends(PROMPT_TOKENS, config.grid)) + config.encoder.lookahead


def first_chunk_token2wav_ms(bench: Bench) -> float:
    return _first_chunk_ms(bench, "first_chunk_token2wav", crowd_of(bench).token2wav)


def first_chunk_without_kernels_ms(bench: Bench) -> float:
    """The plain modules, captured."""
    with bench.without_kernels():
        token2wav = Token2Wav(bench.flow, bench.vocoder)
        token2wav.warm_up()
    return _first_chunk_ms(bench, "first_chunk_plain", token2wav)


def first_chunk_eager_ms(bench: Bench) -> float:
    """The plain modules, each of their launches on its own."""
    token2wav = Token2Wav(bench.flow, bench.vocoder, static=False)
    return _first_chunk_ms(bench, "first_chunk_eager", token2wav, repeats=8)


def _first_chunk_ms(bench: Bench, name: str, token2wav: Token2Wav, repeats: int = 50) -> float:
    begun = token2wav.begin(bench.voice, with_prompt=True, seed=0, speed=1.0)
    tokens = bench.random_tokens(1, first_tokens(bench.flow.config))

    def run() -> None:
        token2wav.start([begun], [tokens], [False], urgent=True).get()

    return bench.wall_ms(name, run, bench.few(repeats, 2))


@dataclass
class OneStream:
    """Figures of one stream at a time."""

    first_audio_ms: dict[str, float]
    rtf_1_stream: float
    warmup_s: float
    gpu_memory_gib: float | None


def one_stream(bench: Bench) -> OneStream:
    crowd = crowd_of(bench)
    crowd.open(0)
    crowd.rest()
    heard, took = [], 0.0
    for seed in range(bench.few(60, 2)):
        begun = time.perf_counter()
        heard.append(crowd.open(seed))
        crowd.rest()
        took += time.perf_counter() - begun
    _check(heard)
    first = [one.first_ms for one in heard]
    bench.samples["first_audio_ms"] = first
    return OneStream(
        {"p50": percentile(first, 0.5), "p95": percentile(first, 0.95)},
        took / sum(one.seconds for one in heard),
        crowd.warmed_up,
        torch.cuda.max_memory_reserved() / 2**30 if bench.device.type == "cuda" else None,
    )


def streams_32(bench: Bench) -> dict[str, float]:
    crowd, concurrency, streams = crowd_of(bench), bench.few(32, 1), bench.few(200, 3)
    if crowd.seconds(concurrency, streams) > bench.left and not bench.tiny:
        raise CosyError("no time was left")
    found = _point(bench, crowd, concurrency, streams)
    return {"first_audio_p95_ms": found[0], "c100": found[1]}


def max_realtime_streams(bench: Bench) -> int | None:
    """The largest of some mean concurrencies with first audio p95 <= 300 ms and C100 >= 99 %;
    0 where none of them has that, None where there was no time to try."""
    crowd = crowd_of(bench)
    largest: int | None = None
    points = [1] if bench.tiny else [200, 250, 300, 350, 400, 450, 500]
    lower = [] if bench.tiny else [160, 120, 80, 40]
    while points:
        concurrency, streams = points.pop(0), bench.few(500, 3)
        if crowd.seconds(concurrency, streams) > bench.left and not bench.tiny:
            break
        late, smooth = _point(bench, crowd, concurrency, streams)
        if late <= 300 and smooth >= 0.99:
            largest = concurrency
            lower = []
        else:
            largest = largest or 0
            points, lower = lower[:1], lower[1:]
    return largest


def offline_b64_audio_s_per_s(bench: Bench) -> float:
    count, crowd = bench.few(64, 2), crowd_of(bench)

    def speak() -> tuple[float, float]:
        begun = time.perf_counter()
        heard = [crowd.open(seed, stream=False) for seed in range(count)]
        crowd.rest()
        _check(heard)
        return sum(one.seconds for one in heard), time.perf_counter() - begun

    speak()
    runs = [speak() for _ in range(bench.few(3, 1))]
    bench.samples["offline_b64"] = runs
    return sum(seconds for seconds, _ in runs) / sum(took for _, took in runs)


def _point(bench: Bench, crowd: Crowd, concurrency: float, streams: int) -> tuple[float, float]:
    """p95 of first audio, and the share of streams that never fell silent for 100 ms."""
    heard = crowd.poisson(concurrency, streams)
    _check(heard)
    first = [one.first_ms for one in heard]
    gaps = [one.underrun for one in heard]
    bench.samples[f"poisson_{concurrency}"] = {"first_ms": first, "underrun_s": gaps}
    return percentile(first, 0.95), sum(gap <= 0.1 for gap in gaps) / len(gaps)


def _check(heard: list[Heard]) -> None:
    errors = [error for one in heard for error in one.errors]
    if errors:
        raise errors[0]
