"""How much speech a text has at least, and so whether its speech ended long before the text did."""

from __future__ import annotations

from dataclasses import dataclass

from cosyserve.models.config import ModelConfig
from cosyserve.text.split import count_letters

SPOKEN = 0.45  # of what the voice promises: a prompt of two seconds may be off by half
HELD = 1.1  # times the fewest tokens: an LM that ends as soon as it may would have ended before
IDS_PER_LETTER = 2  # at most, in any script; what has more is mostly marks


@dataclass(frozen=True)
class Pace:
    """Speech tokens for each id of a text, for each letter, and for each id at least."""

    per_id: float
    per_letter: float
    least_per_id: float

    @classmethod
    def of(cls, config: ModelConfig, text_ids: int, speech_tokens: int, transcript: str) -> Pace:
        """That of the prompt which leads the LM: its ids, its speech, its text. Where it lacks one
        of them, or they can't belong together, only the least is known."""
        assert config.lm
        if not config.speech:
            return cls(0.0, 0.0, 0.0)
        least, most = config.lm.speech_per_text
        letters = count_letters(transcript)
        if not (text_ids and letters and least * text_ids <= speech_tokens <= most * text_ids):
            return cls(0.0, 0.0, least)
        return cls(speech_tokens / text_ids, speech_tokens / letters, least)

    def expected(self, ids: int, letters: int) -> float:
        """An id of a script that the tokenizer has few words of is less speech, and so is one of a
        mark; a letter of another script may be more. The text is taken for the shorter of both."""
        return min(self.per_id * ids, self.per_letter * letters)

    def least_tokens(self, ids: int, text: str) -> int:
        """Fewer speech tokens than these are not all of the text."""
        letters = count_letters(text)
        held = self.least_per_id * min(ids, IDS_PER_LETTER * letters)
        return int(max(SPOKEN * self.expected(ids, letters), HELD * held))
