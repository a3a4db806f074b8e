"""Speaking while the text still arrives: which ids the LM is fed next.

Five text ids, fifteen speech ids, and so on; with the fill id the LM asks for more text. When the
text has ended, the rest of it and the task id are fed at once and the LM speaks until its end id.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from cosyserve.models.config import LMConfig

TEXT_RUN, SPEECH_RUN = 5, 15


class Bistream:
    """Ask `feed` for LM input; None means: push text or end it. Then `take` the sampled id."""

    min_tokens = 0  # before the end id is allowed: how much text will come is not known

    def __init__(
        self,
        config: LMConfig,
        prompt_text: Sequence[int],
        prompt_speech: Sequence[int],
        prefix: Sequence[int] = (),
    ) -> None:
        """`prefix`: text ids that are fed once, in front of all others."""
        self.config = config
        self.generated: list[int] = []  # fills included
        self._arrived: deque[int] = deque()
        self._ended = False
        self._speaking = False  # whether `_input` is to be fed and an id to be drawn
        self._last = False  # whether all of the text was fed
        self._started = False  # whether text was fed behind the prefix
        self._input = [config.sos, *prefix]
        self._text = list(prompt_text)
        self._speech = [config.text_vocab + token for token in prompt_speech]
        self._next_fill = (len(prompt_speech) // SPEECH_RUN + 1) * SPEECH_RUN - len(prompt_speech)

    def push(self, text: Iterable[int]) -> None:
        self._arrived.extend(text)

    def end(self) -> None:
        self._ended = True

    def feed(self) -> list[int] | None:
        """Ids of the LM's vocabulary to append now, or None: waiting for text."""
        while not self._speaking and self._arrived:
            self._read(self._arrived.popleft())
        if self._ended and not (self._speaking or self._last):
            self._input += [*self._text, self.config.task]
            self._speaking = self._last = True
        return self._input if self._speaking else None

    @property
    def forced(self) -> int | None:
        """The id that must come next, whatever is sampled."""
        due = not self._last and len(self.generated) == self._next_fill
        return self.config.fill if due else None

    @property
    def forbidden(self) -> tuple[int, ...]:
        """Ids that must not be sampled now."""
        allowed = self.config.eos if self._last else self.config.fill
        return tuple(i for i in self.config.control if i != allowed)

    def take(self, token: int) -> bool:
        """The id that was drawn (or forced). True: it is speech."""
        if token == self.config.fill:
            self._next_fill = len(self.generated) + SPEECH_RUN + 1
        self.generated.append(token)
        if token >= self.config.speech_tokens:
            self._speaking = False
            return False
        self._input = [self.config.text_vocab + token]
        return True

    @property
    def finished(self) -> bool:
        return self._last and not self._speaking

    def _read(self, text: int) -> None:
        self._text.append(text)
        while self._speech and len(self._text) >= TEXT_RUN:
            self._started = True
            self._input += self._text[:TEXT_RUN] + self._speech[:SPEECH_RUN]
            del self._text[:TEXT_RUN], self._speech[:SPEECH_RUN]
        if self._speech:
            return
        filled = bool(self.generated) and self.generated[-1] == self.config.fill
        if filled or not self._started:
            if len(self._text) < TEXT_RUN:
                return
            self._started = True
            self._input = ([] if filled else self._input) + self._text[:TEXT_RUN]
            del self._text[:TEXT_RUN]
        self._speaking = True
