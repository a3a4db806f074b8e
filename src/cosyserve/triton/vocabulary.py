"""The ids that travel between Triton models: those of the original's repositories.

They are the same for every model of a family, whatever the size of its own text vocabulary. The
LM's are those of its Hugging Face form; other models take speech tokens by the same ids in
CosyVoice2's repository, and as plain numbers in CosyVoice3's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cosyserve.backends import vocabulary
from cosyserve.backends.vocabulary import Vocabulary
from cosyserve.errors import InputError


@dataclass(frozen=True)
class TritonVocabulary:
    lm: Vocabulary
    first: int  # the id of speech token 0, where no text can be

    def ids(self, tokens: Iterable[int]) -> list[int]:
        """The ids of speech tokens."""
        return [self.first + token for token in tokens]

    def tokens(self, ids: Sequence[int]) -> tuple[int, ...]:
        """The speech tokens of ids."""
        first, end = self.first, self.first + self.lm.speech
        if any(not first <= number < end for number in ids):
            plus = f": speech tokens + {first}" if first else ""
            raise InputError(f"speech ids must be {first}..{end - 1}{plus}")
        return tuple(number - first for number in ids)


COSYVOICE2 = TritonVocabulary(vocabulary.COSYVOICE2, first=vocabulary.COSYVOICE2.text)
COSYVOICE3 = TritonVocabulary(vocabulary.COSYVOICE3, first=0)


def vocabulary_of(family: str) -> TritonVocabulary:
    return COSYVOICE3 if family == "cosyvoice3" else COSYVOICE2
