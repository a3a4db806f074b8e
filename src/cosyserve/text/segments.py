"""Text as a client sent it to the segments a model speaks: normalise, then split.

Knows no tokenizer, only a way to count tokens.
"""

from __future__ import annotations

from cosyserve.text.fixes import ALL_MENDS, Mend, Mends
from cosyserve.text.language import detect, named
from cosyserve.text.normalize import is_marked_up, spoken_form
from cosyserve.text.numbers import Reader, read_numbers
from cosyserve.text.split import Length, only_punctuation, speakable, split


def segments(
    text: str,
    length: Length,
    normalize: bool = True,
    *,
    language: str = "",
    read: Reader = read_numbers,
    mends: Mends = ALL_MENDS,
) -> list[str]:
    """The segments to speak one after another; none when there is nothing to say.

    `length` counts the tokens of a text; `language` is its code ("": told by its script).
    Marked-up text, and text that is not to be normalised, is one segment as it stands.
    """
    if Mend.NOTHING_TO_SAY in mends and not speakable(text):
        return []
    if not normalize or not text or is_marked_up(text):
        return [text]
    rules = named(language) if language else detect(text, mends)
    spoken = spoken_form(text, rules, read=read, mends=mends)
    parts = split(spoken, wide=rules.wide, length=len if rules.wide else length, mends=mends)
    if Mend.NOTHING_TO_SAY in mends:
        return [part for part in parts if speakable(part)]
    return [part for part in parts if not only_punctuation(part)]
