"""What words sound like: sounds that the listener tells apart, and kinds of sounds that a letter or
a character may stand for."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from pathlib import Path

import numpy as np

from cosyserve.contracts import Floats
from cosyserve.text.pronouncer import Pronouncer
from cosyserve.text.tokens.special import SPECIAL

SILENCE = "_"
CONSONANTS = "ptkbdɡʧʤʃʒszfvθðhmnŋlɹwj"
VOWELS = "iɪɛæʌəɜɑɔʊuAIOWY"  # capitals: as in day, my, go, now, boy
SOUNDS = SILENCE + CONSONANTS + VOWELS

# Other signs of the pronouncer, and of Mandarin, as the nearest sounds.
# fmt: off
_NEAREST = {
    "ᵊ": "ə", "ᵻ": "ɪ", "T": "d", "Q": "O", "ɒ": "ɑ", "ɐ": "ə", "a": "æ",
    "ɕ": "ʃ", "ʂ": "ʃ", "x": "h", "ɻ": "ɹ", "ɥ": "j", "y": "i", "e": "A", "o": "ɔ", "ɤ": "ə",
    "ɨ": "ɪ", "ɚ": "ɜ", "ʨ": "ʤ", "ꭧ": "ʤ", "ʦ": "z",
}
# Letters of languages whose spelling nobody here reads: what each may stand for.
_LETTERS = {
    "a": "æɑʌəAI", "b": "bpv", "c": "kszʧʃθ", "d": "dðt", "e": "ɛəiɪA", "f": "fv", "g": "ɡʤhjk",
    "h": "h", "i": "iɪjI", "j": "jʤʒh", "k": "kɡ", "l": "lj", "m": "mn", "n": "nŋm", "o": "ɔOʊuəɑ",
    "p": "pb", "q": "k", "r": "ɹəhɡ", "s": "szʃʒ", "t": "td", "u": "uʊwjəʌ", "v": "vfbw",
    "w": "wvuʊ", "x": "kszʃ", "y": "ijɪuI", "z": "zsθð",
}
# fmt: on
INITIAL, FINAL, ANY = "initial", "final", "any"  # of a character's syllable; of an unknown letter
KINDS = (*SOUNDS, *(f"letter {letter}" for letter in _LETTERS), INITIAL, FINAL, ANY)
SYLLABLES = "\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"  # characters that stand for one
UNLIKELY = 0.1  # as likely as a sound that is expected, one that is not
_SYLLABLE = re.compile(f"[{SYLLABLES}]")
PRONOUNCER = Path(__file__).parents[1] / "nano" / "pronouncer.safetensors"

Sounds = tuple[int, ...]  # indices of KINDS


def kinds_by_sound() -> Floats:
    """How likely each kind is to be heard as each sound, next to the sound itself: [K, S]"""
    table = np.zeros((len(KINDS), len(SOUNDS)), np.float32)
    table[: len(SOUNDS)] = np.eye(len(SOUNDS))
    consonant = np.array([sound in CONSONANTS for sound in SOUNDS])
    vowel = np.array([sound in VOWELS for sound in SOUNDS])
    for letter, sounds in _LETTERS.items():
        heard = np.array([sound in sounds for sound in SOUNDS])
        table[_index(f"letter {letter}")] = np.where(heard, 1.0, UNLIKELY)
    table[_index(INITIAL)] = np.where(consonant, 1.0, UNLIKELY)
    table[_index(FINAL)] = np.where(vowel, 1.0, UNLIKELY)
    table[_index(FINAL), [SOUNDS.index(coda) for coda in "nŋɹj"]] = 0.5
    table[_index(ANY)] = 0.5 * (consonant | vowel)
    table[len(SOUNDS) :, 0] = UNLIKELY / 2  # a closed mouth is silent, too
    return table


def sounds_of_phonemes(phonemes: str) -> Sounds:
    """Of the pronouncer's signs, or those of Mandarin; stress, length and tones are left out."""
    nearest = (_NEAREST.get(sign, sign) for sign in phonemes)
    return tuple(SOUNDS.index(sign) for sign in nearest if sign in SOUNDS[1:])


@lru_cache(maxsize=20_000)
def sounds_of_english(words: str) -> Sounds:
    return sounds_of_phonemes(SPECIAL.sub("", _pronouncer()(words)))


@lru_cache(maxsize=20_000)
def sounds_of_letters(words: str) -> Sounds:
    """Of any script: a character that is a syllable has an initial and a final, as a digit has."""
    sounds: list[int] = []
    for sign in unicodedata.normalize("NFKC", words.lower()):
        if is_syllable(sign) or sign.isdecimal():
            sounds += [_index(INITIAL), _index(FINAL)]
        elif (letter := unicodedata.normalize("NFD", sign)[0]) in _LETTERS:
            sounds.append(_index(f"letter {letter}"))
        elif unicodedata.category(sign)[0] in "LN":
            sounds.append(_index(ANY))
    return tuple(sounds)


def is_syllable(sign: str) -> bool:
    """Whether a character stands for a syllable: ideographs and kana."""
    return _SYLLABLE.match(sign) is not None


def _index(kind: str) -> int:
    return KINDS.index(kind)


ANY_SOUNDS: Sounds = (_index(ANY), _index(ANY))  # of a word that nobody can read


@lru_cache(maxsize=1)
def _pronouncer() -> Pronouncer:
    return Pronouncer.load(PRONOUNCER)
