"""Pronunciation dictionaries in the pronouncer's phonemes: misaki's JSON files, CMU's in ARPAbet.

Knows no net.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from cosyserve.text.pronouncer import ARPABET_SOUNDS
from cosyserve.text.pronouncer import STRESS as STRESS_MARKS

DEFAULT = "DEFAULT"
SYLLABIC_AFTER = ("T", "D", "S", "Z", "SH", "CH", "JH", "ZH")  # as in listen, button
WEAK = "iɪᵻɛæɑɔʊʌəɐᵊɜO"  # vowels that sound alike where no stress is
_ALIKE = {"ɔ": "ɑ", "ɜ": "ə", "ʌ": "ə", "T": "t"}  # and these anywhere

_SLACK = {"əl": "l", "əɹ": "ɹ", "ˈæɹ": "ˈɛɹ", "ˈiɹ": "ˈɪɹ", "nʧ": "nʃ", "jə": "ə", "əə": "ə"}


def read_dictionary(file: Path) -> dict[str, list[str]]:
    """Words in small letters and how they may be said, the usual way first."""
    return cmu_words(file) if file.suffix == ".dict" else misaki_words(file)


def misaki_words(file: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for word, sound in json.loads(file.read_text("utf-8")).items():
        said = sound if isinstance(sound, dict) else {DEFAULT: sound}  # by part of speech
        if said.get(DEFAULT) and not word[1:].isupper():
            usual_first = [said[DEFAULT], *filter(None, said.values())]
            found.setdefault(
                word.lower(), [s.replace("ɾ", "T").replace("ʔ", "t") for s in usual_first]
            )
    return found


def cmu_words(file: Path) -> dict[str, list[str]]:
    """`word S AW1 N D`, a line each; `word(2)` is said otherwise."""
    found: dict[str, list[str]] = {}
    for line in file.read_text("utf-8").splitlines():
        word, *sounds = line.partition("#")[0].split()
        if word[0].isalpha():
            found.setdefault(word.partition("(")[0], []).append(of_arpabet(sounds))
    return found


def of_arpabet(sounds: list[str]) -> str:
    """HH AH0 L OW1 -> həlˈO, as misaki writes it: with a tapped t, and ᵊ in the last syllable."""
    phonemes = ""
    for n, sound in enumerate(sounds):
        before, after = (sounds[i] if 0 <= i < len(sounds) else "" for i in (n - 1, n + 1))
        last = n + 2 == len(sounds)
        if sound == "T" and (before == "R" or before[-1:].isdigit()) and after.endswith("0"):
            phonemes += "T"
        elif sound == "AH0" and last and _is_syllabic(before, after):
            phonemes += "ᵊ"
        elif sound in ("AH0", "ER0"):
            phonemes += {"AH0": "ə", "ER0": "əɹ"}[sound]
        else:
            phonemes += STRESS_MARKS.get(sound[-1], "") + ARPABET_SOUNDS[sound.rstrip("012")]
    return phonemes


def _is_syllabic(before: str, after: str) -> bool:
    if after == "L":
        return bool(before) and before != "R" and not before[-1].isdigit()
    return after == "N" and before in SYLLABIC_AFTER


def outline(phonemes: str) -> str:
    """What readings share that differ in what few people hear: consonants, syllables, where the
    stress is and the vowel that has it."""
    marks, sounds, stressed = phonemes.replace("ˌ", ""), "", False
    for n, mark in enumerate(marks):
        weak = mark in WEAK and not stressed and not (mark in "iO" and n + 1 == len(marks))
        sounds += "ə" if weak else _ALIKE.get(mark, mark)
        stressed = mark == "ˈ"
    for slack, tight in _SLACK.items():
        sounds = sounds.replace(slack, tight)
    return re.sub("(?<=[tdnszl])j(?=ˈu)", "", sounds)


def sounds_alike(phonemes: str, others: list[str]) -> bool:
    """Whether it is one of the others, to most people."""
    return outline(phonemes) in map(outline, others)
