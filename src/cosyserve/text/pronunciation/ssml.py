"""A subset of SSML: speech in parts with pauses between them, each at a rate of its own.

Words that are given by their sounds become entries of a lexicon.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from xml.parsers import expat

from cosyserve.errors import InputError
from cosyserve.text.language import Language, detect
from cosyserve.text.pronunciation.lexicon import marked
from cosyserve.text.pronunciation.phonemes import from_arpabet, from_ipa, from_pinyin
from cosyserve.text.pronunciation.say_as import say_as
from cosyserve.text.sentences import END
from cosyserve.text.split import speakable
from cosyserve.text.tokens.special import MARKS

START = "<speak"
MAX_PAUSE, MAX_PAUSES = 10.0, 60.0  # seconds of one, and of all
MAX_SOUNDS = 500  # words that are given by their sounds

_IGNORED = frozenset({"version", "xmlns", "xmlns:xsi", "xsi:schemaLocation", "xml:lang"})
_ATTRIBUTES = {
    "speak": _IGNORED,
    "break": frozenset({"time", "strength"}),
    "prosody": frozenset({"rate"}),
    "sub": frozenset({"alias"}),
    "phoneme": frozenset({"alphabet", "ph"}),
    "say-as": frozenset({"interpret-as"}),
}
_OF_WORDS = ("sub", "phoneme", "say-as")  # they hold text and nothing else
# Seconds.
_STRENGTHS = {"none": 0, "x-weak": 0.1, "weak": 0.25, "medium": 0.5, "strong": 1, "x-strong": 2}
_RATES = {"x-slow": 0.5, "slow": 0.75, "medium": 1.0, "default": 1.0, "fast": 1.25, "x-fast": 1.5}
_TIME = re.compile(r"(\d+(?:\.\d+)?)(ms|s)")
_RATE = re.compile(r"([+-]?)(\d+(?:\.\d+)?)(%?)")
_ALPHABETS: dict[str, Callable[[str], str]] = {
    "ipa": from_ipa,
    "x-arpabet": from_arpabet,
    "arpabet": from_arpabet,
    "x-pinyin": from_pinyin,
    "pinyin": from_pinyin,
    "py": from_pinyin,
}


@dataclass(frozen=True)
class SsmlPart:
    """A text ("": none), how fast it is spoken, and seconds of silence behind it (None: no break
    says how many)."""

    text: str
    rate: float = 1.0
    pause: float | None = None


@dataclass(frozen=True)
class Ssml:
    parts: list[SsmlPart]
    lexicon: dict[str, str]  # of words that are given by their sounds


def is_ssml(text: str) -> bool:
    return text.lstrip().startswith(START)


def may_become_ssml(text: str) -> bool:
    """Whether the start of a text is too short to tell."""
    start = text.lstrip()
    return len(start) < len(START) and START.startswith(start)


def read_ssml(text: str) -> Ssml:
    """The document; whatever it can't be read for is an InputError."""
    reader = _Reader(chinese=detect(text) is Language.CHINESE)
    parser = expat.ParserCreate()
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.characters
    parser.StartDoctypeDeclHandler = reader.doctype
    parser.buffer_text = True
    try:
        parser.Parse(text.strip().encode(), True)
    except expat.ExpatError as error:
        at = f"line {error.lineno}, column {error.offset + 1}"
        fault = expat.errors.messages.get(error.code, error.code)
        raise InputError(f"SSML: {fault}, at {at}; write & as &amp; and < as &lt;") from error
    except UnicodeEncodeError as error:
        raise InputError("SSML: text holds half a surrogate pair: send valid Unicode") from error
    return reader.finish()


@dataclass
class _Reader:
    chinese: bool
    parts: list[SsmlPart] = field(default_factory=list)
    lexicon: dict[str, str] = field(default_factory=dict)
    text: str = ""  # of the part that is being read
    open: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    rates: list[float] = field(default_factory=lambda: [1.0])
    inner: str = ""  # text of an element that is about words

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name not in _ATTRIBUTES:
            known = ", ".join(f"<{tag}>" for tag in _ATTRIBUTES)
            raise InputError(f"SSML: there is no <{name:.40}> here: use {known}")
        if (name == "speak") != (not self.open):
            raise InputError("SSML: <speak> holds all of the text, and no other <speak>")
        if self.open and self.open[-1][0] in (*_OF_WORDS, "break"):
            raise InputError(f"SSML: <{self.open[-1][0]}> holds no <{name}>")
        for attribute in attributes.keys() - _ATTRIBUTES[name]:
            known = ", ".join(sorted(_ATTRIBUTES[name]))
            raise InputError(f"SSML: <{name}> has no {attribute!r:.40}: it has {known}")
        self.open.append((name, attributes))
        if name == "prosody":
            self._end_part()
            self.rates.append(self.rates[-1] * _rate(_needed(name, attributes, "rate")))

    def end(self, name: str) -> None:
        _, attributes = self.open.pop()
        if name == "break":
            self._end_part(_pause(attributes))
        elif name == "prosody":
            self._end_part()
            self.rates.pop()
        elif name in _OF_WORDS:
            self.text += self._word(name, attributes, self.inner.strip())
            self.inner = ""

    def characters(self, text: str) -> None:
        text = re.sub(f"[{MARKS}]", "", text)
        name = self.open[-1][0]
        if name == "break" and text.strip():
            raise InputError("SSML: <break> holds no text: write <break/>")
        if name in _OF_WORDS:
            self.inner += text
        else:
            self.text += text

    def doctype(self, *declaration: object) -> None:
        raise InputError("SSML: a document type is not read: begin with <speak>")

    def finish(self) -> Ssml:
        self._end_part()
        if sum(part.pause or 0.0 for part in self.parts) > MAX_PAUSES:
            raise InputError(f"SSML: all breaks together are longer than {MAX_PAUSES:g} s")
        return Ssml(self.parts, self.lexicon)

    def _end_part(self, pause: float | None = None) -> None:
        text, self.text = self._behind_marks(" ".join(self.text.split())), ""
        if speakable(text):
            self.parts.append(SsmlPart(text, self.rates[-1], pause))
        elif pause is not None:
            last = self.parts.pop() if self.parts else SsmlPart("")
            self.parts.append(replace(last, pause=(last.pause or 0.0) + pause))

    def _behind_marks(self, text: str) -> str:
        """A text without the marks at its start that belong to the words before it."""
        marks = END["clause"].match(f"{text} ")
        if marks is None or not self.parts or self.parts[-1].pause is not None:
            return text
        last = self.parts.pop()
        self.parts.append(replace(last, text=last.text + marks[0]))
        return text[marks.end() :].lstrip()

    def _word(self, name: str, attributes: dict[str, str], inner: str) -> str:
        if name == "sub":
            return _needed(name, attributes, "alias")
        if name == "say-as":
            return say_as(inner, _needed(name, attributes, "interpret-as"), chinese=self.chinese)
        return self._by_sounds(attributes, inner)

    def _by_sounds(self, attributes: dict[str, str], inner: str) -> str:
        sounds = _needed("phoneme", attributes, "ph")
        alphabet = attributes.get("alphabet", "ipa").lower()
        if alphabet not in _ALPHABETS:
            known = ", ".join(_ALPHABETS)
            raise InputError(f"SSML: no alphabet {alphabet!r:.40} of <phoneme>: use {known}")
        if len(self.lexicon) >= MAX_SOUNDS:
            raise InputError(f"SSML: more than {MAX_SOUNDS} <phoneme>")
        word = marked(inner if speakable(inner) else "x", len(self.lexicon))
        self.lexicon[word] = _ALPHABETS[alphabet](sounds)
        return word


def _needed(name: str, attributes: dict[str, str], attribute: str) -> str:
    if not attributes.get(attribute, "").strip():
        raise InputError(f"SSML: <{name}> needs {attribute}='…'")
    return attributes[attribute].strip()


def _pause(attributes: dict[str, str]) -> float:
    strength = attributes.get("strength", "medium")
    if strength not in _STRENGTHS:
        raise InputError(f"SSML: strength is one of {', '.join(_STRENGTHS)}")
    if "time" not in attributes:
        return _STRENGTHS[strength]
    time = _TIME.fullmatch(attributes["time"].strip())
    seconds = float(time[1]) / (1000 if time[2] == "ms" else 1) if time else -1.0
    if not 0 <= seconds <= MAX_PAUSE:
        raise InputError(f"SSML: time of <break> is '300ms' or '1.5s', {MAX_PAUSE:g}s at most")
    return seconds


def _rate(written: str) -> float:
    if written in _RATES:
        return _RATES[written]
    match = _RATE.fullmatch(written)
    if match:
        sign, number, percent = match.groups()
        rate = float(number) / (100 if percent else 1)
        rate = 1 + rate if sign == "+" else 1 - rate if sign else rate
        if rate > 0:
            return rate
    raise InputError(
        f"SSML: rate of <prosody> is '80%', '+10%', '1.2' or one of {', '.join(_RATES)}"
    )
