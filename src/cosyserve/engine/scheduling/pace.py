"""How much speech a text has, and so whether its speech ended long before the text did."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cosyserve.models.config import ModelConfig

SPOKEN = 0.5  # of the expected speech; less is not all of the text


@dataclass(frozen=True)
class Pace:
    """Speech tokens for each id and for each letter of a text."""

    per_id: float
    per_letter: float = math.inf

    @classmethod
    def of(cls, config: ModelConfig, text_ids: int, speech_tokens: int, transcript: str) -> Pace:
        """That of the prompt which leads the LM; where it has not both text and speech, or they
        can't belong together, what the model speaks at least."""
        assert config.lm
        if not config.speech:
            return cls(0.0)
        least, most = config.lm.speech_per_text
        letters = count_letters(transcript)
        if not (letters and least * text_ids <= speech_tokens <= most * text_ids):
            return cls(least)
        return cls(speech_tokens / text_ids, speech_tokens / letters)

    def expected(self, ids: int, letters: int) -> float:
        """An id of a script that the tokenizer has few words of is less speech, and so is one of a
        mark; a letter of another script may be more. The text is taken for the shorter of both."""
        return min(self.per_id * ids, self.per_letter * letters)

    def least_tokens(self, ids: int, text: str) -> int:
        """Fewer speech tokens than these are not all of the text."""
        return int(SPOKEN * self.expected(ids, count_letters(text)))


def count_letters(text: str) -> int:
    """Letters and digits of any script."""
    return sum(map(str.isalnum, text))
