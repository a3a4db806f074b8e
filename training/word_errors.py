"""How many words of a text a listener missed, however he writes numbers, compounds and titles.

Knows no speech.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from training.heard_numbers import MONTHS, UNITS, Words, readings

# Spellings of one word; the second is compared.
SPELLED = {
    "mr": "mister", "mrs": "missus", "ms": "miss", "dr": "doctor", "prof": "professor",
    "okay": "ok", "oclock": "o'clock", "grey": "gray", "programme": "program", "tyre": "tire",
    "catalogue": "catalog", "dialogue": "dialog", "defence": "defense", "offence": "offense",
    "licence": "license", "practise": "practice", "cosy": "cozy", "mould": "mold", "plough": "plow",
    "pyjamas": "pajamas", "yoghurt": "yogurt", "doughnut": "donut", "judgement": "judgment",
    "whisky": "whiskey", "jewellery": "jewelry", "metre": "meter", "litre": "liter",
    "centre": "center", "theatre": "theater", "fibre": "fiber",
}  # fmt: skip
BRITISH = (
    (r"\b((?:kilo|centi|milli)(?:met|lit))re(s?)\b", r"\1er\2"),
    (r"\b(met|lit|cent|theat|fib)res\b", r"\1ers"),
    (r"\b(col|fav|hon|lab|neighb|flav|harb|rum|hum|vap|behavi|od|arm|splend|endeav)our", r"\1or"),
    (r"\b([a-z]{4,})is(e[ds]?|ing|ations?)\b", r"\1iz\2"),
    (r"\b(anal|paral)ys(e[ds]?|ing)\b", r"\1yz\2"),
    (r"\b(travel|cancel|model|label|fuel|signal|counsel|level|marvel)l(ed|ing|ers?)\b", r"\1\2"),
)
# What a listener may mean by a word, besides itself.
MEANT = {
    "st": ["saint", "street"], "ave": ["avenue"], "mt": ["mount"], "jr": ["junior"],
    "sr": ["senior"], "vs": ["versus"], "etc": ["et cetera"], "apt": ["apartment"],
    "alright": ["all right"], **{unit: list(said) for unit, said in UNITS.items()},
}  # fmt: skip
Slot = list[Words]  # a place of what was heard: the words that it may stand for
_TOKEN = re.compile(
    r"([$£€#]?)(-?)(\d+(?:,\d{3}(?!\d))*(?:[.:/x-]\d+)*)(?:(%|°[cf]?)|([a-z']+\b))?|[a-z]+(?:'[a-z]+)*"
)
LONGEST_COMPOUND = 3  # words that one may be parted into


def _letters(text: str) -> str:
    """In small letters without accents; signs of words as words, dots of addresses said."""
    text = unicodedata.normalize("NFKD", text.lower()).replace("’", "'")
    text = "".join(sign for sign in text if not unicodedata.combining(sign))
    text = re.sub(r"\b([ap])\.? ?m\b\.?", r"\1m", text).replace("@", " at ").replace("&", " and ")
    text = re.sub(r"(?<=[a-z]{2})\.(?=[a-z]{2})", " dot ", text)
    for british, american in BRITISH:
        text = re.sub(british, american, text)
    return re.sub(r"(?<=[a-z])-|-(?=[a-z])", " ", text)


def slots(text: str) -> list[Slot]:
    """What was heard, with every way in which it may have been said."""
    found: list[Slot] = []
    before = ""
    for token in _TOKEN.finditer(_letters(text)):
        sign, minus, number, mark, suffix = token.groups()
        if number:
            said = readings(sign, number, mark or suffix or "", day=before in MONTHS)
            found.append([["minus", *words] for words in said] if minus else said)
        else:
            if token[0] in MONTHS and re.fullmatch(r"\d{1,2}", before):  # 30 June
                day = readings("", before, "th")[0]
                found[-1] = [*found[-1], ["the", *day, "of"]]
            word = SPELLED.get(token[0], token[0])
            found.append([[word], *(meant.split() for meant in MEANT.get(word, ()))])
        before = token[0]
    return found


def plain(text: str) -> Words:
    """Lower-case words without punctuation, numbers as counts."""
    return [word for slot in slots(text) for word in slot[0]]


def word_errors(said: Sequence[str], heard: str) -> tuple[int, int]:
    """Edits between what was said (in several spellings) and what was heard, and words said."""
    places = slots(heard)
    written = {word for slot in places for words in slot for word in words}
    counts = []
    for text in said:
        words = plain(text)
        joined = _joined(words, written - set(words))
        counts.append((_edits(joined, _compounds(places, set(joined))), len(words)))
    return min(counts)


def _joined(words: Words, compounds: set[str]) -> Words:
    """Neighbours that are one word among the compounds become one."""
    joined: Words = []
    at = 0
    while at < len(words):
        count = next(
            (n for n in range(LONGEST_COMPOUND, 1, -1) if "".join(words[at : at + n]) in compounds),
            1,
        )
        joined.append("".join(words[at : at + count]))
        at += count
    return joined


def _compounds(places: list[Slot], said: set[str]) -> list[Slot]:
    """The same with neighbours as one place that are one word of what was said."""
    plain_words = {slot[0][0] for slot in places if len(slot[0]) == 1}
    wanted = said - plain_words
    found: list[Slot] = []
    at = 0
    while at < len(places):
        count = 1
        for n in range(LONGEST_COMPOUND, 1, -1):
            some = places[at : at + n]
            first = [word for slot in some for word in slot[0]]
            if len(some) == n and "".join(first) in wanted:
                found.append([["".join(first)]])
                count = n
                break
        else:
            found.append(places[at])
        at += count
    return found


def _edits(said: Words, places: list[Slot]) -> int:
    """The fewest, whichever way each place is read."""
    row = list(range(len(said) + 1))
    for slot in places:
        rows = [_after(said, words, row) for words in slot]
        row = [min(column) for column in zip(*rows, strict=True)]
    return row[-1]


def _after(said: Words, heard: Words, row: list[int]) -> list[int]:
    for other in heard:
        before, row = row, [row[0] + 1]
        for j, word in enumerate(said, start=1):
            row.append(min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (word != other)))
    return row


def word_error_rate(pairs: Sequence[tuple[Sequence[str], str]]) -> float:
    """Of (said, heard); a listener that runs away counts as one that heard nothing."""
    counts = [word_errors(said, heard) for said, heard in pairs]
    return sum(min(errors, words) for errors, words in counts) / sum(words for _, words in counts)
