"""What an utterance wants of the speech LM, step by step: ids to feed, ids not to draw.

Knows no tensor and no other utterance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cosyserve.contracts import FinishReason, LMRequest, Sampling
from cosyserve.models.config import LMConfig
from cosyserve.models.lm.bistream import Bistream

SEED_MASK = (1 << 63) - 1


class WholeText:
    """A text that is known from the start; the same interface as `Bistream`."""

    forced: int | None = None

    def __init__(self, config: LMConfig, prompt: Sequence[int], min_tokens: int) -> None:
        """`prompt`: all that leads the speech, in the LM's vocabulary; `min_tokens` ids are drawn
        before the end may be."""
        self.config, self.min_tokens = config, min_tokens
        self.finished = False
        self._input = list(prompt)
        # Ids that mean something only while text arrives would end the speech in its middle.
        never = (i for i in range(config.speech_tokens, config.classes) if i != config.eos)
        self.forbidden = tuple(never)

    def feed(self) -> list[int] | None:
        return None if self.finished else self._input

    def take(self, token: int) -> bool:
        if token == self.config.eos:
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
    tokens: list[int] = field(default_factory=list)  # speech
    drawn: list[int] = field(default_factory=list)  # all ids, fills and ends too
    pending: list[int] = field(default_factory=list)  # to feed before the next draw
    length: int = 0  # positions in the cache
    finish: FinishReason | None = None
    log_probs: list[float] | None = None  # of the tokens; None: nobody wants them

    @classmethod
    def of(cls, config: LMConfig, asked: LMRequest) -> Generation:
        speech = (config.text_vocab + token for token in asked.speech)
        prompt = [config.sos, *asked.text, config.task, *speech]
        text = WholeText(config, prompt, asked.min_tokens)
        log_probs: list[float] | None = [] if asked.log_probs else None
        return cls(text, asked.seed, asked.sampling, asked.max_tokens, log_probs=log_probs)

    def want(self) -> list[int]:
        """Ids to feed now; none: finished, or waiting for text."""
        if not self.pending and self.finish is None:
            self.pending = list(self.text.feed() or ())
        return self.pending

    @property
    def led(self) -> bool:
        """Whether somebody must look at each draw before it is known what is fed next."""
        return isinstance(self.text, Bistream)

    def take(self, token: int) -> None:
        self.drawn.append(token)
        if self.text.take(token):
            self.tokens.append(token)
        if self.text.finished:
            self.finish = "stop"
        elif len(self.tokens) >= self.max_tokens:
            self.finish = "length"
