"""The ids of a speech LM in its Hugging Face form: text, speech tokens, three ends, start, task."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cosyserve.backends.protocols import LMRequest
from cosyserve.errors import LLMServerError


@dataclass(frozen=True)
class Vocabulary:
    """The defaults are those of CosyVoice2's LM."""

    text: int = 151_663  # ids before <|s_0|>
    speech: int = 6561  # different speech tokens

    @property
    def ends(self) -> range:
        return range(self.text + self.speech, self.text + self.speech + 3)

    @property
    def start(self) -> int:
        return self.ends.stop

    @property
    def task(self) -> int:
        return self.start + 1

    def prompt(self, request: LMRequest) -> list[int]:
        """The prompt of a request: start, text, task, speech."""
        speech = (self.text + token for token in request.speech)
        return [self.start, *request.text, self.task, *speech]

    def tokens(self, ids: Iterable[int]) -> tuple[int, ...]:
        """The speech tokens of drawn ids, ends left out."""
        drawn = [number for number in ids if number not in self.ends]
        for number in drawn:
            if not self.text <= number < self.ends.start:
                raise LLMServerError(f"the LLM drew the id {number}, which is no speech token")
        return tuple(number - self.text for number in drawn)
