"""Speech tokens as the text that an LLM server makes of them: `<|s_0|><|s_17|>`.

The text comes in any pieces: half a token, several, blanks in between.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from cosyserve.errors import LLMServerError

ENDS = ("<|eos1|>", "<|eos2|>", "<|eos3|>", "<|eos|>")
MAX_FOREIGN = 32  # characters of an answer that belong to no token; more is no speech

_TOKEN = re.compile(r"<\|(?:s_([0-9]{1,7})|eos[123]?|sos|task_id|fill)\|>")
_INCOMPLETE = re.compile(r"<(?:\|\w{0,9}\|?)?\Z")


def to_text(tokens: Iterable[int]) -> str:
    """Speech tokens as text."""
    return "".join(f"<|s_{token}|>" for token in tokens)


class TokenReader:
    """Reads the speech tokens of one answer."""

    def __init__(self, speech_tokens: int, numbered: int = 0) -> None:
        """`speech_tokens` is the number of different ones; names with higher numbers, up to that of
        all `numbered` ones, are ends."""
        self.ended = False
        self._speech = speech_tokens
        self._numbered = max(speech_tokens, numbered)
        self._rest = ""
        self._foreign = ""

    def read(self, text: str) -> list[int]:
        """The tokens that this text completes; after an end there are none."""
        text, self._rest = self._rest + text, ""
        tokens: list[int] = []
        behind = 0
        for match in _TOKEN.finditer(text):
            if self.ended:
                return tokens
            self._note(text[behind : match.start()])
            behind = match.end()
            token = None if match[1] is None else self._token(int(match[1]))
            if token is None or token >= self._speech:
                self.ended = True
            else:
                tokens.append(token)
        if not self.ended:
            incomplete = _INCOMPLETE.search(text, behind)
            self._note(text[behind : incomplete.start() if incomplete else None])
            self._rest = incomplete[0] if incomplete else ""
        return tokens

    def close(self) -> None:
        """Ends the answer: nothing may be left of a token."""
        if self._rest and not self.ended:
            raise LLMServerError(f"the LLM server stopped within a token: {self._rest!r}")

    def _token(self, token: int) -> int:
        if token >= self._numbered:
            raise LLMServerError(
                f"the LLM server drew <|s_{token}|>, but there are {self._speech} speech tokens: "
                "it serves another model"
            )
        return token

    def _note(self, text: str) -> None:
        """Counts text between tokens as foreign, except blanks, which detokenizers add."""
        self._foreign += "".join(text.split())
        if len(self._foreign) > MAX_FOREIGN:
            raise LLMServerError(
                f"the LLM server writes text instead of speech tokens ({self._foreign[:60]!r}): "
                "serve the speech LM in its Hugging Face format, with its own tokenizer"
            )
