"""English abbreviations as the words that are said, without the pause that their dots would make.

A dot that may end the sentence, too, stays where a sentence seems to end. Knows no sounds.
"""

from __future__ import annotations

import re

_NEVER_LAST = {
    "e.g.": "for example",
    "i.e.": "that is",
    "a.k.a.": "also known as",
    "approx.": "approximately",
    "cf.": "compare",
    "vs.": "versus",
    "vs": "versus",
}
_PERHAPS_LAST = {
    "etc.": "et cetera",
    "inc.": "incorporated",
    "ltd.": "limited",
    "corp.": "corporation",
    "jr.": "junior",
    "sr.": "senior",
    "ph.d.": "P H D",
}
_TITLES = {
    "Dr": "doctor",
    "Mr": "mister",
    "Mrs": "missus",
    "Ms": "miz",
    "Prof": "professor",
    "Gen": "general",
    "Col": "colonel",
    "Lt": "lieutenant",
    "Capt": "captain",
    "Sen": "senator",
    "Rep": "representative",
    "Mt": "mount",
    "St": "saint",
}
# Those with a vowel that are spelled all the same; without one, all are.
_SPELLED = re.compile(
    "AC|AI|AM|API|ATM|CEO|CFO|CIA|CPU|CTO|DIY|ETA|EU|FAQ|FBI|GPU|HIV|IBM|ID|IP|IQ|MBA|NBA|NYU|OS"
    "|SUV|UAE|UCLA|UFO|UI|UK|UN|UPS|URL|US|USA|USB|USD|UX"
)
_VOWELS = set("AEIOUY")
_NAMES = {"a": "ay", "w": "double you"}  # of letters that a reader of words takes for others

_BEGIN = r"(?<![A-Za-z.'])"


def _any_of(words: dict[str, str]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


_WORD = re.compile(
    rf"{_BEGIN}(?:({_any_of(_NEVER_LAST)})|({_any_of(_PERHAPS_LAST)}))(?![A-Za-z'])", re.IGNORECASE
)
_STREET = re.compile(r"(?<=[a-z] )St(?:\.(?=\s*[a-z,;])|(?=\.\s*$))")
_TITLE = re.compile(rf"{_BEGIN}({_any_of(_TITLES)})\.?(?=\s+[A-Z])")
_DOTTED = re.compile(rf"{_BEGIN}(?:[A-Za-z]\.){{2,}}(?![A-Za-z])")
_INITIAL = re.compile(rf"{_BEGIN}([A-HJ-Z])\.(?=\s+[A-Z])")
_CAPITALS = re.compile(
    r"(?<![A-Za-z'|\[])(?<!I )(?:[A-Z]{2,}|W)(?![A-Za-z'|\]])"
)  # no control token
_LAST = re.compile(r"[\s\"'”’)]*(?:$|[A-Z])")


def spoken_words(text: str) -> str:
    """'Dr. Wu, e.g. in the U.S.' -> 'doctor Wu, for example in the U S.'"""
    shouted = text.isupper()
    text = _WORD.sub(_words, text)
    text = _TITLE.sub(lambda title: _TITLES[title[1]], _STREET.sub("street", text))
    text = _INITIAL.sub(lambda letter: _spoken(letter[1]), _DOTTED.sub(_letters, text))
    return _CAPITALS.sub(lambda word: _spelled(word[0], shouted), text)


def _words(found: re.Match[str]) -> str:
    if found[1]:
        return _NEVER_LAST[found[1].lower()]
    last = _LAST.match(found.string, found.end())
    return _PERHAPS_LAST[found[2].lower()] + ("." if last else "")


def _letters(found: re.Match[str]) -> str:
    last = not found.string[found.end() :].strip("\"'”’) ")
    return _spoken(found[0].replace(".", "")) + ("." if last else "")


def _spelled(word: str, shouted: bool) -> str:
    known = _SPELLED.fullmatch(word) and not shouted
    return _spoken(word) if known or not _VOWELS & set(word) else word


def _spoken(letters: str) -> str:
    return " ".join(_NAMES.get(letter.lower(), letter) for letter in letters)
