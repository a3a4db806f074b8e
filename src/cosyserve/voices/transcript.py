"""Whether a text can be what a recording says, by its length."""

from __future__ import annotations

import unicodedata

from cosyserve.contracts import TOKENS_PER_SECOND, Voice
from cosyserve.text import END_OF_PROMPT
from cosyserve.text.split import count_letters

# Of speech with its pauses, from very slow to faster than anybody is understood. English has about
# 13; a number is written with few and said with many.
LETTERS_PER_SECOND = 3.0, 35.0
LETTERS_OF_WIDE = 3  # that a Chinese character, or another as wide, is as long as


def transcript_warning(voice: Voice) -> str:
    """Why a voice may repeat words; empty where its text fits its recording, or is not known."""
    *_, transcript = voice.prompt_text.split(END_OF_PROMPT)
    seconds = len(voice.speech_tokens) / TOKENS_PER_SECOND
    slowest, fastest = (seconds * rate for rate in LETTERS_PER_SECOND)
    letters = count_letters(transcript) + (LETTERS_OF_WIDE - 1) * _count_wide(transcript)
    if not (letters and seconds) or slowest <= letters <= fastest:
        return ""
    much = "much" if letters > fastest else "little"
    return (
        f"the text is very {much} for {seconds:.1f} s of speech. If that is not what the recording "
        "says, the model repeats words or speaks the prompt: correct the text"
    )


def _count_wide(text: str) -> int:
    """Letters that are written as wide as Chinese ones."""
    return count_letters("".join(c for c in text if unicodedata.east_asian_width(c) in "WF"))
