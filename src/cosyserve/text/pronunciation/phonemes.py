"""Sounds as text: `[HH][AH0][L][OW1]`, the names that CosyVoice3's vocabulary has for them.

English ones are ARPAbet's, Chinese ones initials and finals of pinyin. Written in IPA or in pinyin
with tone numbers, they are translated.
"""

from __future__ import annotations

import re
from itertools import pairwise

from cosyserve.errors import InputError
from cosyserve.text.tokens.special import COSYVOICE3_TOKENS, ENGLISH_SOUNDS, SPECIAL_TOKENS

ARPABET, PINYIN = "ARPAbet", "pinyin"
_SOUNDS = frozenset(COSYVOICE3_TOKENS) - {*SPECIAL_TOKENS, "<|endofsystem|>"}
SOUND = re.compile(r"\[[^\[\]\s]{1,8}\]")

# fmt: off
_IPA = {
    "i": "IY", "iː": "IY", "ɪ": "IH", "ᵻ": "IH", "eɪ": "EY", "ɛ": "EH", "e": "EH", "æ": "AE",
    "a": "AA", "ɑ": "AA", "ɑː": "AA", "ɒ": "AA", "ɔ": "AO", "ɔː": "AO", "oʊ": "OW", "əʊ": "OW",
    "o": "OW", "ʊ": "UH", "u": "UW", "uː": "UW", "ʌ": "AH", "ə": "AH", "ɐ": "AH", "ɜ": "ER",
    "ɜː": "ER", "ɜɹ": "ER", "ɜr": "ER", "ɜːɹ": "ER", "ɜːr": "ER", "ɝ": "ER", "ɝː": "ER", "ɚ": "ER",
    "əɹ": "ER", "ər": "ER", "aɪ": "AY", "aʊ": "AW", "ɔɪ": "OY",
    "p": "P", "b": "B", "t": "T", "d": "D", "k": "K", "ɡ": "G", "g": "G", "tʃ": "CH", "ʧ": "CH",
    "dʒ": "JH", "ʤ": "JH", "f": "F", "v": "V", "θ": "TH", "ð": "DH", "s": "S", "z": "Z", "ʃ": "SH",
    "ʒ": "ZH", "h": "HH", "m": "M", "n": "N", "ŋ": "NG", "l": "L", "ɫ": "L", "r": "R", "ɹ": "R",
    "ɾ": "D", "j": "Y", "w": "W", "ʍ": "W",
}
# fmt: on
_STRESS = {"ˈ": "1", "'": "1", "ˌ": "2"}
_IPA_PART = re.compile("|".join(sorted(map(re.escape, _IPA), key=len, reverse=True)))
_FIRST_FULL_VOWEL = re.compile("[ieɛæaɑɒɔoʊuʌɜɝɪ]|əʊ")
_UNHEARD = ".‿͜͡"
_VOWELS = frozenset("AEIOU")
_INITIAL = re.compile(r"zh|ch|sh|[bpmfdtnlgkhjqxrzcsyw]")
_SYLLABLE = re.compile(r"([a-zü]+)([0-5])")
_TONES = {"a": "āáǎà", "e": "ēéěè", "i": "īíǐì", "o": "ōóǒò", "u": "ūúǔù", "ü": "ǖǘǚǜ"}


def from_ipa(ipa: str) -> str:
    """həˈloʊ -> [HH][AH0][L][OW1]; words stay apart."""
    return " ".join(map(_word_from_ipa, ipa.split()))


def from_arpabet(names: str) -> str:
    """HH AH0 L OW1 -> [HH][AH0][L][OW1]"""
    return checked("".join(f"[{name}]" for name in names.upper().split()), ARPABET)


def from_pinyin(syllables: str) -> str:
    """tian1 qi4 -> [t][iān][q][ì]"""
    return "".join(map(_syllable, syllables.lower().replace("v", "ü").split()))


def checked(sounds: str, alphabet: str = "") -> str:
    """Sounds that there are, of an alphabet ("": of any)."""
    for sound in SOUND.findall(sounds):
        english = ENGLISH_SOUNDS.fullmatch(sound) is not None
        if sound not in _SOUNDS or (alphabet and (alphabet == ARPABET) != english):
            raise InputError(f"there is no sound {sound} in {alphabet or 'ARPAbet or pinyin'}")
    return sounds


def alphabets_of(sounds: str) -> set[str]:
    """The alphabets that the sounds in a text belong to."""
    found = [sound for sound in SOUND.findall(sounds) if sound in _SOUNDS]
    return {ARPABET if ENGLISH_SOUNDS.fullmatch(sound) else PINYIN for sound in found}


def _word_from_ipa(word: str) -> str:
    sounds, stress, at = "", "0", 0
    if not any(mark in word for mark in _STRESS):  # as of one syllable
        word = _FIRST_FULL_VOWEL.sub(r"ˈ\g<0>", word, count=1)
    while at < len(word):
        if word[at] in _STRESS:
            stress = _STRESS[word[at]]
        elif part := _IPA_PART.match(word, at):
            name = _IPA[part[0]]
            if name[0] in _VOWELS:
                name, stress = name + stress, "0"
            sounds += f"[{name}]"
            at += len(part[0]) - 1
        elif word[at] not in _UNHEARD:
            raise InputError(f"/{word:.40}/: no English sound is written {word[at]!r} in IPA")
        at += 1
    return sounds


def _syllable(written: str) -> str:
    match = _SYLLABLE.fullmatch(written)
    if not match or _INITIAL.fullmatch(match[1]):
        raise InputError(f"pinyin is written as 'tian1 qi4', not {written!r:.40}")
    letters, tone = match.groups()
    initial = _INITIAL.match(letters)
    final = letters[initial.end() :] if initial else letters
    toned = _with_tone(final, int(tone)).replace("ü", "v")
    return checked((f"[{initial[0]}]" if initial else "") + f"[{toned}]", PINYIN)


def _with_tone(final: str, tone: int) -> str:
    """The mark stands on a or e, on the o of ou, else on the last vowel."""
    vowels = [at for at, letter in enumerate(final) if letter in _TONES]
    if tone in (0, 5) or not vowels:
        return final
    strong = [at for at in vowels if final[at] in "ae"] or [
        at for at, following in pairwise([*vowels, -1]) if final[at : following + 1] == "ou"
    ]
    at = (strong or vowels[-1:])[0]
    return final[:at] + _TONES[final[at]][tone - 1] + final[at + 1 :]
