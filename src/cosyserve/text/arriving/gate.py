"""Holds back what may still change its reading, and releases it in words as soon as it can't.

`3` may become `3rd`, `$1,2` may become `$1,234.50`. Words without a number near them pass at once.
"""

from __future__ import annotations

from cosyserve.text.arriving.chinese import clause_end, holds_number, is_plain, last_settled
from cosyserve.text.arriving.english import last_border
from cosyserve.text.language import Language, detect, language_from_code
from cosyserve.text.normalize import chinese_marks, is_marked_up, spoken_end, spoken_part
from cosyserve.text.numbers import GRAMMAR_CHARACTERS, Allowance, Reader, read_numbers
from cosyserve.text.split import missing_end, speakable

MAX_HELD = 80  # characters; then they are read as they stand
MAX_CONTEXT = 200  # characters of a Chinese clause that a number is read with
TAIL = 32  # characters that are remembered to tell how the text has ended


class ReadinessGate:
    """One text: `push` its pieces, then `flush`. What they give, joined, is the spoken text."""

    def __init__(self, language: str = "", read: Reader = read_numbers) -> None:
        """`language` is the code of the text's ("": detected by what has come of it)."""
        self._known = language_from_code(language) if language else None
        self._language = self._known or detect("")
        self._read = read
        self._allowances = {name: Allowance(most) for name, most in GRAMMAR_CHARACTERS.items()}
        self._arrived = ""  # all of the text
        self._marked_up = False  # then it is left as it is
        self._context = ""  # the end of the text, as far back as it is needed
        self._settled = 0  # characters of the context that were released
        self._words = ""  # that they were released as
        self._tail = ""  # of all words

    @property
    def held(self) -> int:
        """Characters that wait for more text."""
        return len(self._context) - self._settled

    @property
    def holds_number(self) -> bool:
        return any(map(str.isdecimal, self._context[self._settled :]))

    def push(self, piece: str) -> str:
        """The words that are settled now."""
        piece = piece if self._arrived else piece.lstrip()
        self._arrived += piece
        self._context += piece
        if self._known is None and not piece.isascii():
            self._language = detect(self._arrived)
        self._marked_up = self._marked_up or is_marked_up(self._arrived)
        words = self._release(self._settled_end())
        return words if self.held <= MAX_HELD else words + self.release()

    def release(self) -> str:
        """The words of what is held, read as it stands: it has waited for too long."""
        words = self._release(len(self._context.rstrip(" \n，,、")))
        self._forget(self._settled)
        return words

    def flush(self) -> str:
        """The words of what is left: the text has ended."""
        tail, words = self._tail, self._release(len(self._context.rstrip()))
        if self._marked_up or not speakable(self._arrived):
            return words
        if self._language is Language.CHINESE:
            words = spoken_end(words)
        return words + missing_end(tail + words, wide=self._language.wide)

    def _settled_end(self) -> int:
        if self._marked_up:
            return len(self._context)
        if self._language is Language.ENGLISH:
            return last_border(self._context)
        if self._language is Language.CHINESE:
            return last_settled(self._context, self._settled)
        return len(self._context.rstrip())

    def _release(self, end: int) -> str:
        words = ""
        if self._language is Language.CHINESE and not self._marked_up:
            while stop := clause_end(self._context, self._settled, end):
                words += self._next_words(stop)
                end -= stop
                self._forget(stop)
        if end > self._settled:
            words += self._next_words(end)
            if self._language is not Language.CHINESE or end > MAX_CONTEXT:
                self._forget(end)
        self._tail = (self._tail + words)[-TAIL:]
        return words

    def _next_words(self, end: int) -> str:
        """The words of the context up to `end` that were not released."""
        fresh = self._context[self._settled : end]
        if self._marked_up or (self._language is Language.CHINESE and is_plain(fresh)):
            words = self._words + fresh
        elif not self._settled or holds_number(fresh):
            words = self._spoken(self._context[:end])
            if not words.startswith(self._words):  # its end has changed how its start is read
                words = self._words + self._spoken(fresh)
        else:
            seen = len(chinese_marks(self._context[: self._settled]))
            words = self._words + chinese_marks(self._context[:end])[seen:]
        released = words[len(self._words) :]
        self._settled, self._words = end, words
        return released

    def _spoken(self, text: str) -> str:
        language = self._language
        allowance = self._allowances.get(language)
        return spoken_part(text, language, read=self._read, allowance=allowance)

    def _forget(self, end: int) -> None:
        """What stands before the index is not needed any more."""
        self._context = self._context[end:]
        self._settled, self._words = 0, ""
