"""One attempt at an utterance: which of its tokens become the next chunk, and whether they can be
spoken at all.

The scheduler and the split engine both hold it, so that they speak alike.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from cosyserve.contracts import FinishReason, Floats
from cosyserve.engine.compute.hops import NEVER, hop_ends
from cosyserve.engine.compute.limits import SILENCE
from cosyserve.errors import CosyError

MAX_EXTRA_TOKENS = 50  # of a first chunk that had to wait for its turn


class UnusableTakeError(CosyError):
    """A take that can't be spoken; another one, with another seed, may go better."""


class TokenSource(Protocol):
    """Speech tokens as an LM draws them."""

    tokens: list[int]
    finish: FinishReason | None


class Take:
    needed: int  # tokens for another chunk that is not the last

    def __init__(
        self,
        source: TokenSource,
        *,
        stream: bool,
        prompt_tokens: int,
        grid: int,
        lookahead: int,
        hop: int,
        fixed: bool = False,
        least: int = 0,
        pause: int = 0,
        follows: bool = False,
    ) -> None:
        """`prompt_tokens` of the flow's prompt, `hop` tokens in the second chunk. Where chunks are
        `fixed`, none is longer than its hop: the flow's speech depends on it. Fewer than
        `least` tokens ended too soon; `pause` samples of silence come behind the last. What
        `follows` other speech of its stream is not begun before there are so many: its listener has
        something to hear, and it may be drawn again."""
        self.source = source
        self.stream = stream
        self.lookahead = lookahead
        self._grid = grid
        self._extends = stream and not fixed
        self._ends = hop_ends(prompt_tokens, grid, hop)
        self._spoken = 0  # tokens that were turned into audio
        self._last = False  # the next chunk takes all that the LM has drawn to its end
        self._next_hop()
        self._least = least
        self._pause = pause
        if follows and stream:
            self._end += math.ceil(max(0, least - self.needed) / grid) * grid
            self.needed = self._end + lookahead
        self._first_needed = self.needed
        self._max_first_end = self._end + MAX_EXTRA_TOKENS
        self._peak = 0.0

    @property
    def ready(self) -> bool:
        """Whether there are enough tokens for the next chunk."""
        return self.source.finish is not None or len(self.source.tokens) >= self.needed

    @property
    def spare(self) -> int:
        """Tokens beyond those that the next chunk needs."""
        return len(self.source.tokens) - self.needed

    @property
    def final(self) -> bool:
        """Whether the next chunk is the last. It stays so while the LM goes on drawing."""
        tokens, finish = len(self.source.tokens), self.source.finish
        if finish is None:
            return False
        if self._last:
            return True
        return tokens < self.needed or (tokens == self.needed and finish == "length")

    @property
    def may_be_last(self) -> bool:
        """Whether the next chunk may be the last: it is, or becomes so when it is extended."""
        if self.source.finish is None:
            return False
        return self.final or (self._extends and len(self.source.tokens) <= self._max_end)

    @property
    def heard(self) -> bool:
        """Whether some of it became audio."""
        return self._spoken > 0

    @property
    def finish(self) -> FinishReason | None:
        return "early" if self._ended_early else self.source.finish

    @property
    def redraws(self) -> bool:
        """Whether it ended too soon and before a chunk of it could be due. How far the LM ran ahead
        has no say in it: a request gets the same speech, whoever else is served."""
        return self._ended_early and len(self.source.tokens) < self._first_needed

    @property
    def _ended_early(self) -> bool:
        return self.source.finish == "stop" and len(self.source.tokens) < self._least

    def extend(self) -> None:
        """Lets the next chunk take the tokens that there are by now; the first one stays rather
        short, for somebody waits for it."""
        if not (self._extends and self.ready):
            return
        max_end, drawn = self._max_end, len(self.source.tokens)
        self._last = self.source.finish is not None and drawn <= max_end
        if not self._last:
            more = min(drawn - self.lookahead, max_end) - self._end
            self._end += more - more % self._grid
            self.needed = self._end + self.lookahead

    @property
    def _max_end(self) -> int:
        """Tokens that the next chunk may reach to."""
        return NEVER if self._spoken else self._max_first_end

    def due(self) -> list[int]:
        """All tokens that the next chunk is computed from."""
        tokens = self.source.tokens
        return tokens if self.final else tokens[: self.needed]

    def check(self, *, first: bool) -> None:
        """Refuses what can't be spoken, before its last chunk is computed. `first`: no other take
        was tried, so that one without an end may be tried again if nothing of it was heard."""
        if not self.final:
            return
        if self.source.finish == "error":
            raise UnusableTakeError("the speech LM computed NaN: its weights are broken")
        if not self.source.tokens:
            raise UnusableTakeError("the model ended before it said anything")
        if self.source.finish == "length" and first and not self.heard:
            raise UnusableTakeError("the model never came to an end")

    def advance(self, samples: Floats) -> tuple[Floats, int]:
        """The chunk that was due became these samples -> those to send, and the tokens it took."""
        self._peak = max(self._peak, float(np.abs(samples).max(initial=0.0)))
        if self.final and self._peak < SILENCE:
            raise UnusableTakeError("the model was silent: try another seed or voice")
        reached = len(self.source.tokens) if self.final else self._end
        count, self._spoken = reached - self._spoken, reached
        if self.final:
            return np.pad(samples, (0, self._pause)), count
        while self._end <= self._spoken:
            self._next_hop()
        return samples, count

    def _next_hop(self) -> None:
        self._end = next(self._ends)
        # Asked for at every step of every session, so it is no property.
        self.needed = self._end + self.lookahead if self.stream else NEVER
