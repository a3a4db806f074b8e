"""An LM that counts and a token2wav that hums: the scheduler without weights, in milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from cosyserve.contracts import Floats, SpeechRequest, Voice
from cosyserve.engine.compute.generation import Generation, WholeText
from cosyserve.engine.scheduling.scheduler import Scheduler
from cosyserve.engine.scheduling.session import Utterance
from cosyserve.errors import CosyError
from cosyserve.models.config import LMConfig
from cosyserve.text.numbers import Reader, read_numbers

CONFIG = LMConfig(text_vocab=1000)
VOICE = Voice("", np.zeros(0, np.int32), np.zeros((0, 80), np.float32), np.ones(4, np.float32))


@dataclass
class CountingLM:
    """Every row says as many tokens as its prompt is long, one a step."""

    slots: int
    rows: list[Generation] = field(default_factory=list)

    @property
    def free(self) -> int:
        return self.slots - len(self.rows)

    def join(self, row: Generation) -> None:
        assert self.free
        row.quota = len(row.next_inputs())  # type: ignore[attr-defined]
        self.rows.append(row)

    def leave(self, row: Generation) -> None:
        self.rows.remove(row)

    def warm_up(self) -> int:
        return 0

    def reserve(self) -> None:
        pass

    def step(self) -> bool:
        for row in self.rows:
            row.next_inputs()
            row.pending.clear()
            over = len(row.tokens) >= row.quota  # type: ignore[attr-defined]
            row.take(CONFIG.eos if over else len(row.tokens))
        return bool(self.rows)


@dataclass(frozen=True)
class Humming:
    """A state that remembers how many tokens it has spoken."""

    name: str
    spoken: int = 0
    prompt_tokens: int = 0
    grid: int = 25
    lookahead: int = 3
    hop: int = 25
    fixed: bool = False


@dataclass
class Hummed:
    """What was started; it is ready when somebody says so."""

    found: list[tuple[Floats, Humming]]
    ready: bool = True
    launched: bool = False
    polls: int = 0

    def poll(self) -> bool:
        self.polls += 1
        return self.ready

    def get(self) -> list[tuple[Floats, Humming]]:
        return self.found


@dataclass
class HummingToken2Wav:
    in_background = True
    whole_batches = 1
    calls: list[list[str]] = field(default_factory=list)  # who was voiced together
    broken: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)

    def warm_up(self) -> int:
        return 0

    def reserve(self) -> None:
        pass

    def max_batch(self, states: Sequence[Humming], tokens: Sequence[Sequence[int]]) -> int:
        return len(states)

    def start(
        self,
        states: Sequence[Humming],
        tokens: Sequence[Sequence[int]],
        final: Sequence[bool] | None,
        *,
        urgent: bool,
    ) -> Hummed:
        last = [True] * len(states) if final is None else final
        return Hummed(self.advance(states, tokens, last))

    def advance(
        self, states: Sequence[Humming], tokens: Sequence[Sequence[int]], final: Sequence[bool]
    ) -> list[tuple[Floats, Humming]]:
        self.calls.append([v.name for v in states])
        return [self._one(*row) for row in zip(states, tokens, final, strict=True)]

    def _one(self, v: Humming, tokens: Sequence[int], last: bool) -> tuple[Floats, Humming]:
        if v.name in self.broken:
            raise CosyError(f"{v.name} is broken")
        end = len(tokens) - (0 if last else v.lookahead)
        level = 0.0 if v.name in self.silent else 0.5
        samples = np.full(960 * (end - v.spoken), level, np.float32)
        return samples, Humming(v.name, end)


def request(name: str, tokens: int, stream: bool = True) -> SpeechRequest:
    return SpeechRequest(f"{name}:{tokens}", VOICE, stream=stream)


def plan(asked: SpeechRequest, read: Reader = read_numbers, device: int = 0) -> list[Utterance]:
    """'name:tokens' becomes one utterance per '+' of so many tokens."""
    assert isinstance(asked.text, str)
    name, _, sizes = asked.text.partition(":")

    def utterance(size: int) -> Utterance:
        def generate(attempt: int) -> Generation:
            text = WholeText(CONFIG, [0] * size, 0)
            return Generation(text, asked.seed + attempt, asked.sampling, 10_000)

        return Utterance(generate, Humming(name), stream=asked.stream)  # type: ignore[arg-type]

    return [utterance(int(size)) for size in sizes.split("+")]


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


def mock_scheduler(
    slots: int = 4, waiting: int = 8
) -> tuple[Scheduler, HummingToken2Wav, CountingLM, Clock]:
    lm, token2wav, clock = CountingLM(slots), HummingToken2Wav(), Clock()
    scheduler = Scheduler(lm, [token2wav], plan, slots=slots, max_waiting=waiting, clock=clock)
    return scheduler, token2wav, lm, clock
