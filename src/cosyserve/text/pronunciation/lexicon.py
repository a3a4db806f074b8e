"""Words that are said as somebody asked, and nothing else of a text.

A word is hidden behind a private character while the text around it is normalized. How it is said
is written as other text, in IPA between slashes, or as the sounds that a model has names for.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from cosyserve.errors import InputError
from cosyserve.text.pronunciation.phonemes import (
    ARPABET,
    PINYIN,
    SOUND,
    alphabets_of,
    checked,
    from_ipa,
)
from cosyserve.text.split import speakable
from cosyserve.text.tokens.special import COSYVOICE3_TOKENS, HIDDEN_NARROW, HIDDEN_WIDE, MARKS

MAX_ENTRIES = 1000
MAX_CHARACTERS = 100  # of a word, and twice as many of how it is said

_LATIN = re.compile(r"[A-Za-z0-9\u00c0-\u024f]")
_IPA = re.compile(r"/([^/]+)/")
_SOUNDS = re.compile(rf"(?:{SOUND.pattern}\s*)+")
_CONTROL = re.compile("|".join(map(re.escape, COSYVOICE3_TOKENS)))  # they are no words
_MARK = re.compile(f"[{MARKS}]")  # as `marked` sets it
_HIDDEN = re.compile(f"[{HIDDEN_NARROW}{HIDDEN_WIDE}]")


class Lexicon:
    """A word in small letters is meant in any, another one as it is written."""

    def __init__(self, entries: Mapping[str, str], alphabets: Collection[str] = ()) -> None:
        """`alphabets`: of the sounds that the model reads."""
        if len(entries) > MAX_ENTRIES:
            raise InputError(f"a lexicon has {MAX_ENTRIES} words at most, not {len(entries)}")
        self._said: list[str] = []
        self._numbers: dict[str, int] = {}
        for word, said in entries.items():
            _check(word, said)
            self._numbers[word] = len(self._said)
            self._said.append(_as_read(word, said, alphabets))
        self._sorted = sorted(entries)
        self._longest = max(map(len, entries), default=0)
        self._small = {_small(word) for word in entries}
        self._lengths: dict[str, list[int]] = {}  # longest first, by first letters
        for length, first in sorted({(len(word), word[0]) for word in self._small}, reverse=True):
            self._lengths.setdefault(first, []).append(length)

    def __bool__(self) -> bool:
        return bool(self._said)

    def hide(self, text: str) -> str:
        """The text with a private character for each of the words."""
        if not self._said:
            return text
        text, parts, done = _HIDDEN.sub("", text), [], 0
        for start, end in self._words(text):
            parts += [text[done:start], self._hidden(text[start:end])]
            done = end
        return "".join([*parts, text[done:]])

    def show(self, text: str) -> str:
        """The text with what is said for each private character."""
        return _HIDDEN.sub(self._shown, text) if self._said else text

    def __call__(self, text: str) -> str:
        """The text with what is said for each of the words."""
        return self.show(self.hide(text))

    def open_start(self, text: str) -> int:
        """Where a word may have begun whose rest has not arrived."""
        for at in range(max(0, len(text) - self._longest), len(text)):
            end = text[at:]
            if self._begins(end) or self._begins(end.lower()):
                return at
        return len(text)

    def start_at(self, text: str, index: int) -> int:
        """The index, or the start of the word that it stands in."""
        for start, end in self._words(text) if self._said else ():
            if start < index < end:
                return start
        return index

    def _begins(self, start: str) -> bool:
        """Whether a longer word begins so."""
        next_one = bisect_right(self._sorted, start)
        return next_one < len(self._sorted) and self._sorted[next_one].startswith(start)

    def _words(self, text: str) -> Iterator[tuple[int, int]]:
        """Where words, and tokens that control the model, start and end: the longest of each place.

        Looked up by their lengths: a pattern of a thousand words is tried word by word everywhere.
        """
        small, start = _small(text), 0
        while start < len(text):
            if end := self._word_end(text, small, start):
                yield start, end
            start = end or start + 1

    def _word_end(self, text: str, small: str, start: int) -> int:
        """Where the word ends that starts here; 0: none does."""
        if control := _CONTROL.match(text, start):
            return control.end()
        if _inside(text, start):
            return 0
        for length in self._lengths.get(small[start], ()):
            end = start + length
            if small[start:end] in self._small and not _inside(text, end):
                word = text[start:end]
                if len(word) == length and self._number(word) is not None:
                    return end
        return 0

    def _number(self, word: str) -> int | None:
        return self._numbers.get(word, self._numbers.get(word.lower()))

    def _hidden(self, word: str) -> str:
        number = self._number(word)
        if number is None:
            return word
        first = HIDDEN_NARROW if _MARK.sub("", word).isascii() else HIDDEN_WIDE
        return chr(ord(first[0]) + number)

    def _shown(self, hidden: re.Match[str]) -> str:
        first = HIDDEN_WIDE if hidden[0] >= HIDDEN_WIDE[0] else HIDDEN_NARROW
        number = ord(hidden[0]) - ord(first[0])
        return self._said[number] if number < len(self._said) else ""


def read_lexicon(file: Path) -> dict[str, str]:
    """The entries of a JSON file."""
    try:
        entries = json.loads(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: can't be read: {error}") from error
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{file}: not JSON: {error}") from error
    if not isinstance(entries, dict) or not all(isinstance(v, str) for v in entries.values()):
        raise InputError(f'{file}: write a lexicon as {{"nginx": "engine x"}}')
    try:
        Lexicon(entries, (ARPABET, PINYIN))
    except InputError as error:
        raise InputError(f"{file}: {error}") from error
    return entries


def marked(word: str, number: int) -> str:
    """A word that is not the same word elsewhere in the text, nor one with another number."""
    return word + chr(ord(MARKS[0]) + number)


def _check(word: str, said: str) -> None:
    if not speakable(word) or word != word.strip() or len(word) > MAX_CHARACTERS:
        raise InputError(
            f"lexicon: {word!r:.40} is no word: it needs a letter, no blanks around it, and "
            f"{MAX_CHARACTERS} characters at most"
        )
    if not speakable(said) or len(said) > 2 * MAX_CHARACTERS or "\n" in said:
        raise InputError(f"lexicon: {word!r:.40} is said in 1 to {2 * MAX_CHARACTERS} characters")


def _as_read(word: str, said: str, alphabets: Collection[str]) -> str:
    """What is said, as the model reads it."""
    if ipa := _IPA.fullmatch(said):
        said = from_ipa(ipa[1])
    elif _SOUNDS.fullmatch(said):
        checked(said)
    else:
        return said
    for alphabet in sorted(alphabets_of(said) - set(alphabets)):
        known = f"reads {' and '.join(sorted(alphabets))} only" if alphabets else "reads no sounds"
        written = _MARK.sub("", word)
        raise InputError(
            f"{written!r:.40} is given in {alphabet}, and this model {known}: respell it"
        )
    return said


def _small(text: str) -> str:
    """In small letters, each in its place."""
    letters = ((letter, letter.lower()) for letter in text)
    return "".join(s if len(s) == 1 else letter for letter, s in letters).replace("ς", "σ")


def _inside(text: str, at: int) -> bool:
    """Whether a Latin word goes on here; Chinese has no blanks between words."""
    return 0 < at < len(text) and bool(_LATIN.match(text, at - 1) and _LATIN.match(text, at))


NO_LEXICON = Lexicon({})


@lru_cache(maxsize=64)
def _cached(entries: tuple[tuple[str, str], ...], alphabets: frozenset[str]) -> Lexicon:
    return Lexicon(dict(entries), alphabets)


def lexicon(entries: Mapping[str, str], alphabets: Collection[str]) -> Lexicon:
    """The lexicon of a request; those of the last ones are kept."""
    return _cached(tuple(entries.items()), frozenset(alphabets))
