"""The ids of a speech LM in its Hugging Face form: text, speech tokens, control ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cosyserve.backends.protocols import LMRequest
from cosyserve.contracts import Floats
from cosyserve.errors import InputError, LLMServerError
from cosyserve.models.config import LMConfig
from cosyserve.models.config.lm import CONTROL_IDS, ControlIds, LMKind

PAD_ROWS = 128  # the form's table has a multiple of so many rows
NEVER = -1e4  # a logit that nothing is drawn by, in 16 bits, too


@dataclass(frozen=True)
class Vocabulary:
    """The defaults are those of CosyVoice2's LM."""

    text: int = 151_663  # ids before <|s_0|>
    speech: int = 6561  # different speech tokens
    kind: LMKind = "cosyvoice2"

    @classmethod
    def of(cls, config: LMConfig) -> Vocabulary:
        """Of an LM that was read from its Hugging Face form."""
        return cls(config.text_vocab, config.speech_tokens, config.kind)

    @property
    def ends(self) -> range:
        """Ids that can be drawn and are no speech."""
        first = self.text + self.speech
        return range(first, first + self._ids.classes)

    @property
    def end(self) -> int:
        """The end that the LM has learnt; others may be drawn, too."""
        return self.ends.start + self._ids.eos

    @property
    def stops(self) -> range:
        """Ends that the speech of a whole text may have; others are never drawn."""
        return self.ends if self.kind == "cosyvoice3" else range(self.end, self.end + 1)

    @property
    def numbered(self) -> int:
        """How many names <|s_0|>, <|s_1|>, … there are: CosyVoice3's ends have such, too."""
        return self.speech + (len(self.ends) if self.kind == "cosyvoice3" else 0)

    @property
    def start(self) -> int:
        return self.ends.start + self._ids.sos

    @property
    def task(self) -> int:
        return self.ends.start + self._ids.task

    @cached_property
    def bias(self) -> Floats | None:
        """What a runtime has to add to its logits, row by row, so that it draws speech and the
        learnt end alone; None: the LM's own head sees to it.

        CosyVoice3's head can say text. Its other ends are left out, because runtimes hold back
        that one alone while the speech is too short.
        """
        if self.kind != "cosyvoice3":
            return None
        bias = np.full(-(-self.ends.stop // PAD_ROWS) * PAD_ROWS, NEVER, np.float32)
        bias[self.text : self.ends.start] = bias[self.end] = 0.0
        return bias

    def prompt(self, request: LMRequest) -> list[int]:
        """The prompt of a request: start, text, task, speech."""
        return [self.start, *request.text, self.task, *self.ids(request.speech)]

    def parse(self, prompt: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Text ids and speech tokens of a prompt."""
        if not prompt or prompt[0] != self.start or prompt.count(self.task) != 1:
            raise InputError(
                f"input_ids must be {self.start} (start), text, {self.task} (task), speech"
            )
        task = prompt.index(self.task)
        text, speech = prompt[1:task], prompt[task + 1 :]
        if any(not 0 <= number < self.text for number in text):
            raise InputError(f"text ids must be 0..{self.text - 1}")
        if any(not self.text <= number < self.ends.start for number in speech):
            raise InputError(
                f"speech ids must be {self.text}..{self.ends.start - 1}: speech tokens + "
                f"{self.text}"
            )
        return tuple(text), tuple(number - self.text for number in speech)

    def ids(self, tokens: Iterable[int]) -> list[int]:
        """The ids of speech tokens."""
        return [self.text + token for token in tokens]

    def tokens(self, ids: Iterable[int]) -> tuple[int, ...]:
        """The speech tokens of drawn ids, ends left out."""
        drawn = [number for number in ids if number not in self.ends]
        for number in drawn:
            if not self.text <= number < self.ends.start:
                raise LLMServerError(f"the LLM drew the id {number}, which is no speech token")
        return tuple(number - self.text for number in drawn)

    @property
    def _ids(self) -> ControlIds:
        return CONTROL_IDS[self.kind]


COSYVOICE2 = Vocabulary()
COSYVOICE3 = Vocabulary(text=151_924, kind="cosyvoice3")
