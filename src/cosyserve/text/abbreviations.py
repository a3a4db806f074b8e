"""English abbreviations as the words and letters that are said, without a pause at their dots.

Looks at one word at a time, so that a text that arrives word by word is read as a whole one is.
Knows no sounds.
"""

from __future__ import annotations

import re

from cosyserve.text.special import SPECIAL

# Without their last dot, in small letters.
_WORDS = {
    "e.g": "for example",
    "i.e": "that is",
    "a.k.a": "also known as",
    "approx": "approximately",
    "cf": "compare",
    "vs": "versus",
    "etc": "et cetera",
    "inc": "incorporated",
    "ltd": "limited",
    "corp": "corporation",
    "jr": "junior",
    "sr": "senior",
    "ph.d": "P H D",
    "phd": "P H D",
}
# Only with a capital, for "gen." and "rep." end sentences, too.
_TITLES = {
    "dr": "doctor",
    "mr": "mister",
    "mrs": "missus",
    "ms": "miz",
    "prof": "professor",
    "gen": "general",
    "col": "colonel",
    "lt": "lieutenant",
    "sgt": "sergeant",
    "capt": "captain",
    "sen": "senator",
    "rep": "representative",
    "gov": "governor",
    "rev": "reverend",
    "mt": "mount",
    "st": "saint",
}
_NEED_NO_DOT = {"Dr", "Mr", "Mrs", "Ms", "vs", "etc", "PhD"}
_PERHAPS_LAST = {"etc"}  # in a sentence: keeps the dot
# Those with a vowel that are spelled all the same; without one, all are.
_SPELLED = (
    "AC|AI|AM|API|ATM|CEO|CFO|CIA|CPU|CTO|DIY|ETA|EU|FAQ|FBI|GPU|HIV|IBM|ID|IP|IQ|IRS|MBA|NBA|NYC"
    "|NYU|OS|SUV|UAE|UCLA|UFO|UI|UK|UN|UPS|URL|US|USA|USB|USD|UV|UX|[B-DF-HJ-NP-TV-XZ]{2,}|W"
)
_NAMES = {"a": "ay", "w": "double you"}  # of letters that a reader of words takes for others

_WORD = re.compile(rf"({SPECIAL.pattern})|([A-Za-z]+(?:['.][A-Za-z]+)*)(\.*)")
_DOTTED = re.compile(r"(?:[A-Za-z]\.)+[A-Za-z]")
_CAPITALS = re.compile(rf"({_SPELLED})('?s)?")


def spoken_words(text: str) -> str:
    """'Dr. Wu, e.g. in the U.S. Army' -> 'doctor Wu, for example in the U S Army'"""
    return _WORD.sub(_said, text)


def _said(found: re.Match[str]) -> str:
    special, word, dots = found.groups()
    if special:
        return found[0]
    known = _WORDS.get(word.lower()) or (word[0].isupper() and _TITLES.get(word.lower()))
    if known and (dots or "." in word or word in _NEED_NO_DOT):
        return known + (dots if word in _PERHAPS_LAST else dots[1:])
    if _DOTTED.fullmatch(word):
        return _spoken(word.replace(".", "")) + dots[1:]
    if spelled := _CAPITALS.fullmatch(word):
        return _spoken(spelled[1]) + ("'s" if spelled[2] else "") + dots
    return found[0]


def _spoken(letters: str) -> str:
    return " ".join(_NAMES.get(letter.lower(), letter) for letter in letters)
