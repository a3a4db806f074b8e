"""How many words of a text a listener missed, whichever way he writes numbers and titles.

Knows no speech.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

Reading = Callable[[int], list[str]]
SPELLED = {"mr": "mister", "mrs": "missus", "ms": "miss", "dr": "doctor", "prof": "professor"}
SPELLED |= {"okay": "ok", "oclock": "o'clock"}


def plain(text: str, read: Reading | None = None) -> list[str]:
    """Lower-case words without punctuation, numbers as words (as `read` says, or as counts)."""
    text = text.lower().replace("-", " ").replace("’", "'").replace("%", " percent")
    text = re.sub(r"\b([ap])\.? ?m\b\.?", r"\1m", text).replace("@", " at ")
    text = re.sub(r"(\d)\.(?=\d\d ?[ap]m\b)", r"\1:", text)
    text = re.sub(r"(\d):0(?=[1-9])", r"\1 oh ", text)
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    text = re.sub(r"\$(\d+)\.(\d\d)", r"\1 dollars and \2 cents", text)
    text = re.sub(r"\$(\d+\.\d)\b", r"\1 dollars", text)
    text = re.sub(r"\$(\d+)", r"\1 dollars", text)
    text = re.sub(r"(\d+)\.(\d+)", lambda m: f"{m[1]} point {' '.join(m[2])}", text)
    text = re.sub(r"(\d+)(st|nd|rd|th)?", partial(_number, read or _cardinal), text)
    words = re.sub(r"[^a-z' ]", " ", text).split()
    return [SPELLED.get(word, word) for word in (word.strip("'") for word in words)]


ONES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
ONES += ["eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"]
ONES += ["nineteen"]
TENS = ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
ORDINALS = {"one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth"}
ORDINALS |= {"nine": "ninth", "twelve": "twelfth"}


def _number(read: Reading, found: re.Match[str]) -> str:
    words = read(int(found[1]))
    if found[2]:
        last = words[-1]
        regular = last[:-1] + "ieth" if last.endswith("y") else last + "th"
        words[-1] = ORDINALS.get(last, regular)
    return f" {' '.join(words)} "


def _cardinal(number: int) -> list[str]:
    """As the sentences of the corpus say it: with `and` before the tens."""
    if number < 20:
        return [ONES[number]]
    if number < 100:
        return [TENS[number // 10], *(_cardinal(number % 10) if number % 10 else [])]
    for size, name in ((10**9, "billion"), (10**6, "million"), (1000, "thousand")):
        if number >= size:
            rest = number % size
            return [*_cardinal(number // size), name, *(_cardinal(rest) if rest else [])]
    rest = number % 100
    return [ONES[number // 100], "hundred", *(["and", *_cardinal(rest)] if rest else [])]


def _in_pairs(number: int) -> list[str]:
    """As years are said: nineteen oh six, eighteen hundred."""
    century, rest = divmod(number, 100)
    if not 10 <= century < 100 or century % 10 == 0:
        return _cardinal(number)
    if rest == 0:
        return [*_cardinal(century), "hundred"]
    return [*_cardinal(century), *(["oh"] if rest < 10 else []), *_cardinal(rest)]


def _by_digit(number: int) -> list[str]:
    return [ONES[int(digit)] for digit in str(number)]


def word_errors(said: Sequence[str], heard: str) -> tuple[int, int]:
    """Edits between what was said (in several spellings) and what was heard, and words said. A
    listener who writes 1906 may have heard it in several ways: the nearest one counts."""
    readings = (_cardinal, _in_pairs, _by_digit)
    counts = []
    for text in said:
        words = plain(text)
        counts += [(_edits(words, plain(heard, read)), len(words)) for read in readings]
    return min(counts)


def _edits(a: list[str], b: list[str]) -> int:
    row = list(range(len(b) + 1))
    for i, word in enumerate(a, start=1):
        before, row[0] = row[0], i
        for j, other in enumerate(b, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (word != other))
    return row[-1]


def word_error_rate(pairs: Sequence[tuple[Sequence[str], str]]) -> float:
    """Of (said, heard); a listener that runs away counts as one that heard nothing."""
    counts = [word_errors(said, heard) for said, heard in pairs]
    return sum(min(errors, words) for errors, words in counts) / sum(words for _, words in counts)
