"""A row of the speech LM, step by step: ids to feed, ids not to draw, ids that were drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cosyserve.backends.protocols import LMRequest
from cosyserve.contracts import FinishReason, Sampling
from cosyserve.errors import CosyError
from cosyserve.models.config import LMConfig
from cosyserve.models.lm.bistream import Bistream

MAX_SILENCE = 5  # tokens in a row, of a model that is told which are silent


class WholeText:
    """A text that is known from the start; the same interface as `Bistream`."""

    forced: int | None = None

    def __init__(self, config: LMConfig, prompt: Sequence[int], min_tokens: int) -> None:
        """`prompt`: all that leads the speech, in the LM's vocabulary; no end is drawn before
        `min_tokens`."""
        self.config = config
        self.min_tokens = min_tokens
        self.finished = False
        self._input = list(prompt)
        self._stops = config.stops
        # Ids that mean something only while text arrives would end the speech in its middle.
        self.forbidden = tuple(i for i in config.control if i not in config.stops)

    def feed(self) -> list[int] | None:
        return None if self.finished else self._input

    def take(self, token: int) -> bool:
        if token in self._stops:
            self.finished = True
            return False
        self._input = [self.config.text_vocab + token]
        return True


@dataclass(eq=False)
class Generation:
    """One row of the LM."""

    text: WholeText | Bistream
    seed: int
    sampling: Sampling
    max_tokens: int
    enough: int = 0  # tokens of a first chunk: a row alone is read there before it draws on
    tokens: list[int] = field(default_factory=list)  # speech
    drawn: list[int] = field(default_factory=list)  # all ids, fills and ends too
    pending: list[int] = field(default_factory=list)  # to feed before the next draw
    fed: list[int] = field(default_factory=list)  # where text arrives: all ids, newest ones pending
    length: int = 0  # positions in the cache
    finish: FinishReason | None = None
    log_probs: list[float] | None = None  # of the tokens, where they are wanted
    request: LMRequest | None = None  # that it was made of; None: its text still arrives
    dropped: int = 0  # tokens of silence that nobody hears
    _silence: int = 0  # tokens of it, the newest in a row
    _silent: frozenset[int] = field(init=False)
    error: CosyError | None = None  # why an LM elsewhere could not go on

    def __post_init__(self) -> None:
        self._silent = self.text.config.silent

    @classmethod
    def from_request(cls, config: LMConfig, request: LMRequest, sampling: Sampling) -> Generation:
        """`sampling` is that of requests without their own."""
        speech = (config.text_vocab + token for token in request.speech)
        prompt = [config.sos, *request.text, config.task, *speech]
        return cls(
            text=WholeText(config, prompt, request.min_tokens),
            seed=request.seed,
            sampling=request.sampling or sampling,
            max_tokens=request.max_tokens,
            log_probs=[] if request.log_probs else None,
            request=request,
        )

    def next_inputs(self) -> list[int]:
        """Ids to feed now; none: finished, or waiting for text. Of a row that was preempted, all
        that it was fed before come first."""
        if not self.pending and self.finish is None:
            self.pending = list(self.text.feed() or ())
            if self.pending and self.needs_host:
                self.fed += self.pending
                if not self.length:
                    self.pending = list(self.fed)
        return self.pending

    @property
    def needs_host(self) -> bool:
        """Whether the host must see each draw before it knows what is fed next: on a GPU, other
        rows feed their draw to the next step by themselves."""
        return isinstance(self.text, Bistream)

    def take(self, token: int) -> None:
        self.drawn.append(token)
        if self.text.take(token):
            self._hear(token)
        if self.text.finished:
            self.finish = "stop"
        elif len(self.tokens) + self.dropped >= self.max_tokens:
            self.finish = "length"

    def _hear(self, token: int) -> None:
        """Of a long silence only the first tokens are heard; the LM remembers all of it."""
        self._silence = self._silence + 1 if token in self._silent else 0
        if self._silence > MAX_SILENCE:
            self.dropped += 1
        else:
            self.tokens.append(token)


class LMLike(Protocol):
    """What is asked of an LM: `LMRunner`, or a stand-in."""

    rows: list[Generation]

    @property
    def free(self) -> int: ...

    def join(self, row: Generation) -> None: ...

    def leave(self, row: Generation) -> None: ...

    def step(self) -> bool: ...

    def warm_up(self) -> int: ...

    def reserve(self) -> None: ...
