"""Holds back what may still change its reading, and releases it in words as soon as it can't.

`3` may become `3rd`, `$1,2` may become `$1,234.50`. Words without a number near them pass at once.
"""

from __future__ import annotations

from cosyserve.text.arriving.chinese import clause_end, holds_number, is_plain, last_settled
from cosyserve.text.arriving.english import last_border
from cosyserve.text.language import Language, detect, language_from_code
from cosyserve.text.normalize import chinese_marks, is_marked_up, spoken_end, spoken_part
from cosyserve.text.numbers import GRAMMAR_CHARACTERS, Allowance, Reader, read_numbers
from cosyserve.text.pronunciation.lexicon import NO_LEXICON, Lexicon
from cosyserve.text.split import missing_end, speakable

MAX_HELD = 80  # characters; then they are read as they stand
MAX_CONTEXT = 200  # characters of a Chinese clause that a number is read with
TAIL = 32  # characters that are remembered to tell how the text has ended


class ReadinessGate:
    """One text: `push` its pieces, then `flush`. What they give, joined, is the spoken text."""

    def __init__(
        self,
        language: str = "",
        normalize: bool = True,
        *,
        read: Reader = read_numbers,
        lexicon: Lexicon = NO_LEXICON,
    ) -> None:
        """`language` is the code of the text's ("": detected by what has come of it)."""
        self._lexicon = lexicon
        self._known = language_from_code(language) if language else None
        self._language = self._known or detect("")
        self._read = read
        self._allowances = {name: Allowance(most) for name, most in GRAMMAR_CHARACTERS.items()}
        self._arrived = ""  # all of the text
        self._prepared = not normalize  # or marked up: then it is left as it is
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
        return not self._prepared and any(map(str.isdecimal, self._context[self._settled :]))

    def push(self, piece: str) -> str:
        """The words that are settled now."""
        piece = piece if self._arrived or self._prepared else piece.lstrip()
        self._arrived += piece
        self._context += piece
        if self._known is None and not piece.isascii():
            self._language = detect(self._arrived)
        self._prepared = self._prepared or is_marked_up(self._arrived)
        words = self._release(self._cut())
        return words if self.held <= MAX_HELD else words + self.release()

    def release(self) -> str:
        """The words of what is held, read as it stands: it has waited for too long."""
        words = self._release(len(self._context.rstrip(" \n，,、")))
        self._forget(self._settled)
        return words

    def flush(self) -> str:
        """The words of what is left: the text has ended."""
        if self._prepared:
            return self._release(len(self._context))
        tail, words = self._tail, self._release(len(self._context.rstrip()))
        if not speakable(self._arrived):
            return words
        if self._language is Language.CHINESE:
            words = spoken_end(words)
        return words + missing_end(tail + words, wide=self._language.wide)

    def _cut(self) -> int:
        """Up to where the context can be released: not inside a word of the lexicon."""
        limit = self._lexicon.open_start(self._context)
        while (end := self._settled_end(limit)) > self._settled:
            limit = self._lexicon.start_at(self._context, end)
            if limit == end:
                break
        return end

    def _settled_end(self, limit: int) -> int:
        if self._prepared:
            return limit
        if self._language is Language.ENGLISH:
            return last_border(self._context, limit)
        if self._language is Language.CHINESE:
            return last_settled(self._context, self._settled, limit)
        return len(self._context[:limit].rstrip())

    def _release(self, end: int) -> str:
        words = ""
        if self._language is Language.CHINESE and not self._prepared:
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
        before = self._lexicon.hide(self._context[: self._settled])
        fresh = self._lexicon.hide(self._context[self._settled : end])
        if self._prepared or (self._language is Language.CHINESE and is_plain(fresh)):
            words = self._words + fresh
        elif not before or holds_number(fresh):
            words = self._spoken(before + fresh)
            if not words.startswith(self._words):  # its end has changed how its start is read
                words = self._words + self._spoken(fresh)
        else:
            # Behind what is read, not written: 等于 has no blank behind it, = may have one.
            known = chinese_marks(self._words)
            words = self._words + chinese_marks(self._words + fresh)[len(known) :]
        released = self._lexicon.show(words[len(self._words) :])
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
