"""The words of a text, as clients see them, and the sounds that each of them may have.

A word stands between blanks and keeps its marks; ideographs and kana are words of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

from cosyserve.alignment.sounds import (
    ANY_SOUNDS,
    SYLLABLES,
    Sounds,
    is_syllable,
    sounds_of_english,
    sounds_of_letters,
)
from cosyserve.text.language import Language, language_from_code
from cosyserve.text.normalize import spoken_part
from cosyserve.text.pronunciation.lexicon import lexicon
from cosyserve.text.pronunciation.phonemes import ARPABET, PINYIN, SOUND
from cosyserve.text.split import speakable
from cosyserve.text.tokens.special import (
    COSYVOICE3_TOKENS,
    END_OF_PROMPT,
    ENGLISH_SOUNDS,
    MARKS,
    SPECIAL,
)

MAX_LETTERS = 100  # of a word; what follows has no sounds
FOREIGN_SHARE = 0.2  # of words with letters that English has not: then it is another language
_WIDE_OPENERS = "“‘「『（【《〈"
_WORD = re.compile(rf"[({{\[<«{_WIDE_OPENERS}]*(?:[{SYLLABLES}]|[^\s{SYLLABLES}{_WIDE_OPENERS}]+)")
_SILENT = frozenset(t for t in COSYVOICE3_TOKENS if not ENGLISH_SOUNDS.fullmatch(t))
_PRIVATE = re.compile(f"[{MARKS}]")
_BREAK = re.compile(r"[,;:，；：、—–)）\"”]\W*$")
_STOP = re.compile(r"[.!?…。！？]\W*$")


class Pause(IntEnum):
    """What a word's marks say of a pause behind it."""

    NONE, BREAK, STOP = range(3)


@dataclass(frozen=True)
class Word:
    text: str
    sounds: Sounds
    characters: int  # of the text, up to its end

    @property
    def pause(self) -> Pause:
        if _STOP.search(self.text):
            return Pause.STOP
        return Pause.BREAK if _BREAK.search(self.text) else Pause.NONE


class Words:
    """The words of a text that comes in pieces; it makes no difference in which.

    The last one that is known may still get marks, until the text has `ended`.
    """

    def __init__(self, language: str = "", said: Mapping[str, str] | None = None) -> None:
        """`language` is a code ("": found out), `said` a lexicon."""
        self._language = language_from_code(language) if language else None
        self._lexicon = lexicon(said or {}, (ARPABET, PINYIN))
        self._rest = ""  # of the text, from the last known word on
        self._before = 0  # characters before that
        self._wide = self._foreign = 0  # words so far with letters that English has not
        self.known: list[Word] = []
        self.ended = False

    def push(self, piece: str) -> None:
        self._rest += piece
        self._read()

    def end(self) -> None:
        self.ended = True
        self._read()

    def _read(self) -> None:
        text = _without_silent(self._rest)
        found = [word for word in _WORD.finditer(text) if speakable(word[0])]
        edges = [*(word.start() for word in found), len(text)]
        if found and not self.ended and found[-1].end() == len(text) and not is_syllable(text[-1]):
            edges.pop()  # it may go on
        again = self.known.pop() if len(edges) > 1 and self.known else None
        for start, end in pairwise(edges):
            written = text[start:end].rstrip()
            sounds = again.sounds if again else self._sounds_of(written)
            again = None  # the last one that was known had all its sounds, perhaps not all marks
            word = _PRIVATE.sub("", written)
            self.known.append(Word(word, sounds, self._before + start + len(written)))
        if len(edges) > 1:
            self._before += edges[-2]
            self._rest = self._rest[edges[-2] :]

    def _sounds_of(self, written: str) -> Sounds:
        self._wide += any(map(is_syllable, written))
        self._foreign += any(map(_is_foreign, written))
        return self._sounds(self._lexicon(written)[:MAX_LETTERS]) or ANY_SOUNDS

    def _sounds(self, said: str) -> Sounds:
        if self._reads_english(said):
            spoken = spoken_part(said, Language.ENGLISH, read=_as_it_is)
            return sounds_of_english(spoken) or sounds_of_letters(spoken)
        return sounds_of_letters(spoken_part(said, Language.CHINESE, read=_as_it_is))

    def _reads_english(self, said: str) -> bool:
        if any(map(is_syllable, said)):
            return False
        if self._language.wide if self._language else self._wide:
            return not any(map(str.isdecimal, said))  # of English, Chinese has words, no numbers
        if self._language:
            return self._language is Language.ENGLISH
        return self._foreign <= FOREIGN_SHARE * (len(self.known) + 1)


def _is_foreign(sign: str) -> bool:
    return sign.isalpha() and not sign.isascii() and not is_syllable(sign)


def _as_it_is(text: str, language: Language) -> str:
    return text


def _without_silent(text: str) -> str:
    """Blanks for what is no word: control tokens, and sounds that a model has names for."""
    before, end, after = text.rpartition(END_OF_PROMPT)
    text = " " * len(before + end) + after
    for pattern in (SPECIAL, SOUND):
        text = pattern.sub(_blanked, text)
    return text


def _blanked(found: re.Match[str]) -> str:
    return " " * len(found[0]) if found[0] in _SILENT else found[0]
