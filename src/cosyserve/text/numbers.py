"""Numbers, dates, amounts and units as they are read aloud, by rules and the grammars of wetext.

A grammar needs a quarter of a millisecond a character: it gets what no rule knows, and so much of
one text only. No other module imports wetext.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from importlib.resources import files

from cosyserve.errors import CosyError
from cosyserve.text.fixes import ALL_FIXES, Fix, Fixes
from cosyserve.text.grammars.best_path import BestPath
from cosyserve.text.grammars.transducer import Transducer
from cosyserve.text.language import Language
from cosyserve.text.number_rules.as_said import MONTH, PHONE, read_as_said
from cosyserve.text.number_rules.chinese import read_chinese, spell_chinese
from cosyserve.text.number_rules.english import read_english
from cosyserve.text.rewrites.numbers import rewrite_source, rewrite_words, without_stand_ins
from cosyserve.text.tokens.special import HIDDEN_NARROW

Reader = Callable[[str, Language], str]

_DIGIT = re.compile(r"\d")
# A clause of Chinese with a number in it is read whole, but not at any length. Halves of surrogate
# pairs the grammar refuses.
_IN_CLAUSE = r"[^，。！？；\n\ud800-\udfff]{1,100}"
_CLAUSE = re.compile(rf"{_IN_CLAUSE}(?![\d.])|{_IN_CLAUSE}")
# Of English it gets expressions of numbers only: it sets blanks around all marks that it sees,
# takes the first letters of a next word for a unit, and needs 2 ms a character.
_DAY, _YEAR = r"\d{1,2}(?:st|nd|rd|th)?", r"\d{4}"
_DATE = (
    rf"\b(?:{MONTH}\.? (?:{_DAY}(?:-{_DAY})?(?:,? {_YEAR})?|{_YEAR})"
    rf"|{_DAY} {MONTH}(?:,? {_YEAR})?)\b(?!/\d)"
)
UNIT = (
    r"(?:(?:[mb]|tr)illion|[kcmn]?m[²³]|[kcmn]m|[km]g|lbs?|oz|ft|yd|mi|ml|min|[mn]s|mph|rpm|hp|ha"
    r"|[kMG]W|[kMG]?Hz|[KMGTP]B|[kMG]bps|%|°[CF]?|[AaPp][Mm]|[ap]\.m\.)(?![\w'’/-])"
)
_NUMBER = (
    rf"(?:[A-Za-z$£€¥#][A-Za-z$£€¥#@&.:/+*=]{{0,30}}|(?<![\w%){HIDDEN_NARROW}])[+-][$£€¥]?)?"
    r"\.?\d(?:(?:[A-Za-z0-9.,:/@&%$£€¥°²³+*=]|-(?=\d))*[A-Za-z0-9%°²³])?"
)
_EXPRESSION = re.compile(rf"{PHONE}|{_DATE}|'\d0s\b|{_NUMBER}(?: \d+/\d+)?(?: ?{UNIT})?")
_LONGEST_EXPRESSION = 60  # what is longer is no number; its digits are spelled
_SMALL_NUMBER = re.compile(r"[1-9]\d{0,2}")  # needs no grammar, spelled as well

# A number in an expression, or a point that is no number's own.
_PART = re.compile(r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+(?![.\d]))?|\.(?=\d)", re.ASCII)

# What a grammar reads of one text: a tenth of a second of work. Beyond that the digits of Chinese
# are read one by one, and the numbers of an English expression each for itself.
GRAMMAR_CHARACTERS = {Language.ENGLISH: 120, Language.CHINESE: 1000}


@cache
def _grammar(language: Language) -> Callable[[str], str]:
    try:  # here, because it is needed for numbers only
        from wetext.token_parser import TokenParser
        from wetext.utils import load_fst

        tagger = files("wetext.fsts").joinpath(f"{language.value}/tn/tagger.fst").read_bytes()
    except (ImportError, OSError) as error:
        raise CosyError(
            "text normalization needs the package 'wetext': install 0.0.9, or ask for "
            "normalize=False"
        ) from error
    name = language.value
    tag, verbalize = BestPath(Transducer(tagger)), load_fst(f"{name}/tn/verbalizer.fst")

    # Stage by stage: as a whole, wetext takes a bare number for Chinese, and strips blanks.
    def read(text: str) -> str:
        words: str = verbalize(TokenParser(name).reorder(tag(text)))
        return words

    return read


@lru_cache(maxsize=1024)
def read_numbers(text: str, language: Language) -> str:
    """What the grammar of the language makes of the text; without digits, the text itself."""
    return _grammar(language)(text) if _DIGIT.search(text) else text


def read_aloud(
    text: str,
    language: Language,
    read: Reader,
    fixes: Fixes = ALL_FIXES,
    allowance: Allowance | None = None,
) -> Iterator[str]:
    """The text with its numbers read by rules, or by `read` in stretches that it can read: one
    stretch after another, each when it is asked for.

    A text in several parts has one allowance for all of them.
    """
    text = rewrite_source(text, language, fixes)
    if Fix.NUMBERS_ONLY not in fixes:
        words = rewrite_words(read(text, language), language, fixes)
        yield without_stand_ins(words, fixes)
        return
    english = language is Language.ENGLISH
    rule = (read_english if english else read_chinese) if fixes == ALL_FIXES else _no_rule
    as_said = read_as_said if english and Fix.AS_SAID in fixes else _no_rule
    allowed = allowance or Allowance(GRAMMAR_CHARACTERS[language])

    def spoken(stretch: str) -> str:
        written = stretch.strip()
        if not _DIGIT.search(written):
            return stretch
        if english and (len(written) > _LONGEST_EXPRESSION or _SMALL_NUMBER.fullmatch(written)):
            return stretch
        words = as_said(written) or rule(written)
        if words is None and not allowed.covers(written):
            words = _one_by_one(written, fixes) if english else spell_chinese(written)
        elif words is None:
            try:
                words = rewrite_words(read(written, language), language, fixes)
            except AssertionError:  # the grammar has no path through the stretch
                return stretch
        return stretch.replace(written, words, 1)

    end = 0
    for match in (_EXPRESSION if english else _CLAUSE).finditer(text):
        yield without_stand_ins(text[end : match.start()], fixes)
        yield without_stand_ins(spoken(match[0]), fixes)
        end = match.end()
    yield without_stand_ins(text[end:], fixes)


class Allowance:
    """Characters that a grammar may read of one text, the same stretch once."""

    def __init__(self, characters: int) -> None:
        self._left, self._covered = characters, set[str]()

    def covers(self, stretch: str) -> bool:
        if stretch not in self._covered and len(stretch) <= self._left:
            self._left -= len(stretch)
            self._covered.add(stretch)
        return stretch in self._covered


def _one_by_one(expression: str, fixes: Fixes) -> str:
    """5.5GB/2d -> five point five GB/ two d"""

    def read(part: re.Match[str]) -> str:
        return " point " if part[0] == "." else f" {read_english(part[0]) or part[0]} "

    return rewrite_words(_PART.sub(read, expression), Language.ENGLISH, fixes).strip()


def _no_rule(written: str) -> str | None:
    return None
