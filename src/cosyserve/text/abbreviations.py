"""English abbreviations as the words and letters that are said, without a pause at their dots.

Words are read one at a time, so that a text that arrives word by word is read as a whole one is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cosyserve.text.number_rules.numerals import in_words
from cosyserve.text.tokens.special import ENGLISH_SOUNDS, SPECIAL


@dataclass(frozen=True)
class Abbreviation:
    """An abbreviation without its last dot, and the words that are said ("": as it is read)."""

    written: str
    words: str = ""
    title: bool = False  # read as words only with a capital: "gen." and "rep." end sentences, too
    needs_dot: bool = True
    keeps_dot: bool = False  # as a pause: it often ends a sentence
    may_end_sentence: bool = False  # for a splitter, which takes all others for inner words


ABBREVIATIONS = (
    Abbreviation("e.g", "for example"),
    Abbreviation("E.g", "for example"),
    Abbreviation("i.e", "that is"),
    Abbreviation("I.e", "that is"),
    Abbreviation("a.k.a", "also known as"),
    Abbreviation("approx", "approximately"),
    Abbreviation("cf", "compare"),
    Abbreviation("vs", "versus", needs_dot=False),
    Abbreviation("etc", "et cetera", needs_dot=False, keeps_dot=True),
    Abbreviation("Inc", "incorporated"),
    Abbreviation("Ltd", "limited"),
    Abbreviation("Corp", "corporation"),
    Abbreviation("Jr", "junior"),
    Abbreviation("Sr", "senior"),
    Abbreviation("Ph.D", "P H D"),
    Abbreviation("PhD", "P H D", needs_dot=False, may_end_sentence=True),
    Abbreviation("Dr", "doctor", title=True, needs_dot=False),
    Abbreviation("Mr", "mister", title=True, needs_dot=False),
    Abbreviation("Mrs", "missus", title=True, needs_dot=False),
    Abbreviation("Ms", "miz", title=True, needs_dot=False),
    Abbreviation("Prof", "professor", title=True),
    Abbreviation("Gen", "general", title=True),
    Abbreviation("Col", "colonel", title=True),
    Abbreviation("Lt", "lieutenant", title=True),
    Abbreviation("Sgt", "sergeant", title=True),
    Abbreviation("Capt", "captain", title=True),
    Abbreviation("Sen", "senator", title=True),
    Abbreviation("Rep", "representative", title=True),
    Abbreviation("Gov", "governor", title=True),
    Abbreviation("Rev", "reverend", title=True),
    Abbreviation("Mt", "mount", title=True),
    Abbreviation("St", "saint", title=True),
    Abbreviation("Apt", "apartment"),
    Abbreviation("Dept", "department"),
    Abbreviation("Hwy", "highway", needs_dot=False),
    Abbreviation("Ave", "avenue", keeps_dot=True, may_end_sentence=True),
    Abbreviation("Blvd", "boulevard", needs_dot=False, keeps_dot=True, may_end_sentence=True),
    Abbreviation("Rd", "road", keeps_dot=True, may_end_sentence=True),
    Abbreviation("Jan", "january", title=True),
    Abbreviation("Feb", "february", title=True),
    Abbreviation("Aug", "august", title=True),
    Abbreviation("Sept", "september", title=True),
    Abbreviation("Oct", "october", title=True),
    Abbreviation("Nov", "november", title=True),
    Abbreviation("Dec", "december", title=True),
    Abbreviation("Co"),
    Abbreviation("Fig", "figure", title=True),
    Abbreviation("Vol", "volume"),
    Abbreviation("a.m"),
    Abbreviation("p.m"),
    Abbreviation("U.S"),
    Abbreviation("U.K"),
)
# By small letters: "DR. WHO" is read as "Dr. Who" is.
_KNOWN = {entry.written.lower(): entry for entry in ABBREVIATIONS if entry.words}
_NEED_NO_DOT = {entry.written for entry in ABBREVIATIONS if not entry.needs_dot}
_KEEP_DOT = {entry.written for entry in ABBREVIATIONS if entry.keeps_dot}

# Capitals that are spelled although they hold a vowel; without one, all are.
_SPELLED = (
    "AC|AI|AKA|AM|API|ATM|BA|CEO|CFO|CIA|CIO|COO|CPU|CTO|DIY|EPA|ESPN|ETA|EU|FAQ|FBI|FYI|GPU|HBO|HDMI"
    "|HIV|IBM|ID|IP|IPO|IQ|IRS|LA|MBA|MIT|NBA|NGO|NYC|NYU|OS|PTO|SEO|SOS|SUV|TBA|UAE|UCLA|UFC|UFO|UI"
    "|UK|UN|UPS|URL|US|USA|USB|USC|USD|UV|UX|VIP|[B-DF-HJ-NP-TV-XZ]{2,}|W"
)
_LETTER_NAMES = {"a": "ay", "w": "double you"}  # a pronouncer would take these letters for words

_WORD = re.compile(
    rf"({SPECIAL.pattern}|{ENGLISH_SOUNDS.pattern})|([A-Za-z]+(?:['.][A-Za-z]+)*)(\.*)"
)
_DOTTED = re.compile(r"(?:[A-Za-z]\.)+[A-Za-z]")
_ROMAN = re.compile(r"(?=[IVX]{2})X{0,3}(?:IX|IV|V?I{0,3})")  # larger ones are rarely numbers
_CAPITALS = re.compile(rf"({_SPELLED})('?s)?")


def expand_abbreviations(text: str) -> str:
    """'Dr. Wu, e.g. in the U.S. Army' -> 'doctor Wu, for example in the U S Army'"""
    return _WORD.sub(_expanded, text)


def _expanded(match: re.Match[str]) -> str:
    special, word, dots = match.groups()
    if special:
        return match[0]
    entry = _KNOWN.get(word.lower())
    if entry and entry.title and not word[0].isupper():
        entry = None
    if entry and (dots or "." in word or word in _NEED_NO_DOT):
        return entry.words + (dots if word in _KEEP_DOT else dots[1:])
    if _DOTTED.fullmatch(word):
        return _spelled(word.replace(".", "")) + dots[1:]
    if _ROMAN.fullmatch(word):
        return in_words(str(_roman(word))) + dots
    if capitals := _CAPITALS.fullmatch(word):
        return _spelled(capitals[1]) + ("'s" if capitals[2] else "") + dots
    return match[0]


def _roman(number: str) -> int:
    """XIV -> 14"""
    values = [{"I": 1, "V": 5, "X": 10}[letter] for letter in number]
    return sum(
        -value if value < following else value
        for value, following in zip(values, [*values[1:], 0], strict=True)
    )


def _spelled(letters: str) -> str:
    return " ".join(_LETTER_NAMES.get(letter.lower(), letter) for letter in letters)
