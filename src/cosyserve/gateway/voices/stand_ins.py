"""The voices that speak when a client says one of OpenAI's names."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cosyserve.voices.store import DEFAULT

# Each with whether it sounds like a woman or a man.
OPENAI_VOICES = {
    "alloy": "f",
    "ash": "m",
    "ballad": "m",
    "cedar": "m",
    "coral": "f",
    "echo": "m",
    "fable": "m",
    "marin": "f",
    "nova": "f",
    "onyx": "m",
    "sage": "f",
    "shimmer": "f",
    "verse": "m",
}
SEX = re.compile(r"[a-z]([fm])_")  # as of `af_nova`: American, a woman


def stand_ins(shipped: Iterable[str]) -> dict[str, str]:
    """The voice of each of OpenAI's names, different ones as far as the model has them.

    It is the model's that ends in that name (`af_nova`). The other names take the other voices in
    turn, by alphabet, those first that sound alike. A model with one voice has no choice.
    """
    own = sorted(set(shipped) - {DEFAULT})
    if len(own) < 2:
        return dict.fromkeys(OPENAI_VOICES, DEFAULT)
    namesakes = {voice.rpartition("_")[2]: voice for voice in own if "_" in voice}
    chosen = {name: namesakes[name] for name in OPENAI_VOICES if name in namesakes}
    free: list[str] = [voice for voice in own if voice not in chosen.values()]
    for name, sex in OPENAI_VOICES.items():
        if name not in chosen:
            free = free or own.copy()
            alike = [voice for voice in free if _sex(voice) == sex]
            unknown = [voice for voice in free if not _sex(voice)]
            chosen[name] = (alike or unknown or free)[0]
            free.remove(chosen[name])
    return chosen


def _sex(voice: str) -> str:
    """As far as the name tells; "" when it doesn't."""
    match = SEX.match(voice)
    return match[1] if match else ""
