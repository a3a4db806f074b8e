"""Text as a client sent it to the segments a model speaks: normalize, then split."""

from __future__ import annotations

from collections.abc import Iterator

from cosyserve.text.fixes import ALL_FIXES, Fix, Fixes
from cosyserve.text.language import detect, language_from_code
from cosyserve.text.normalize import is_marked_up, spoken_blocks
from cosyserve.text.numbers import Reader, read_numbers
from cosyserve.text.pronunciation.lexicon import NO_LEXICON, Lexicon
from cosyserve.text.split import Length, only_punctuation, speakable, split


def segments(
    text: str,
    length: Length,
    normalize: bool = True,
    *,
    language: str = "",
    read: Reader = read_numbers,
    fixes: Fixes = ALL_FIXES,
    lexicon: Lexicon = NO_LEXICON,
) -> Iterator[str]:
    """The segments to speak one after another, each when it is asked for; none when there is
    nothing to say.

    `length` counts the tokens of a text; `language` is its code ("": detected by its script).
    Marked-up text, and text that is not to be normalized, is one segment as it stands.
    """
    if Fix.NOTHING_TO_SAY in fixes and not speakable(text):
        return
    if not normalize or not text or is_marked_up(text):
        yield lexicon(text)
        return
    rules = language_from_code(language) if language else detect(text, fixes)
    blocks = spoken_blocks(lexicon.hide(text), rules, read=read, fixes=fixes)
    spoken = map(lexicon.show, blocks)
    for part in split(spoken, wide=rules.wide, length=len if rules.wide else length, fixes=fixes):
        if speakable(part) if Fix.NOTHING_TO_SAY in fixes else not only_punctuation(part):
            yield part
