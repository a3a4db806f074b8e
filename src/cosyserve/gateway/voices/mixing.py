"""Voices mixed as Kokoro-FastAPI writes it: `a(2)+b(1)`.

Embeddings can be averaged; recorded prompts can't. Where a model speaks with an embedding alone,
in the mode `preset`, every mix is possible.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from cosyserve.contracts import MEL_BINS, Voice
from cosyserve.gateway.errors import invalid_value

MAX_PARTS = 8
PART = re.compile(r"\s*([\w.-]+)\s*(?:\(\s*(\d{1,6}(?:\.\d{1,6})?)\s*\))?\s*")


def is_mix(name: str) -> bool:
    """No voice has such a name."""
    return "+" in name or "(" in name


def read_mix(text: str) -> list[tuple[str, float]]:
    """The names in a mix, with their weights."""
    parts = [PART.fullmatch(part) for part in text.split("+")]
    if len(parts) > MAX_PARTS:
        raise invalid_value(f"a mix has at most {MAX_PARTS} voices", ["voice"])
    read = [(part[1], float(part[2] or 1)) for part in parts if part]
    if len(read) < len(parts) or not sum(weight for _, weight in read):
        raise invalid_value("write a mix like af_heart(2)+af_nova(1)", ["voice"])
    return read


def mix(parts: Sequence[tuple[Voice, float]], *, embeddings_alone: bool) -> Voice:
    """The voice between these, each with its weight; `embeddings_alone`: no prompt will be used."""
    parts = [(voice, weight) for voice, weight in parts if weight]
    voices = [voice for voice, _ in parts]
    if all(voice.content_hash == voices[0].content_hash for voice in voices):
        return voices[0]
    if not embeddings_alone and any(voice.speech_tokens.size for voice in voices):
        raise invalid_value(
            "voices of recordings can't be mixed, for the model continues one recording; "
            'with "mode": "preset" it hears the mixed embedding alone',
            ["voice"],
        )
    sizes = {voice.embedding.size for voice in voices}
    if len(sizes) > 1 or 1 in sizes:  # a Triton server keeps its shipped voices to itself
        raise invalid_value("these voices can't be mixed here: name one of them", ["voice"])
    families = {voice.family for voice in voices}
    fingerprints = {voice.fingerprint for voice in voices} - {""}  # which is unknown
    if len(families) > 1 or len(fingerprints) > 1:
        raise invalid_value("voices that different models made can't be mixed", ["voice"])
    total = sum(weight for _, weight in parts)
    embedding = sum(weight / total * _unit(voice) for voice, weight in parts)
    return Voice(
        prompt_text="",
        speech_tokens=np.zeros(0, np.int32),
        mel=np.zeros((0, voices[0].mel.shape[1] or MEL_BINS), np.float32),
        embedding=np.asarray(embedding, np.float32),
        family=voices[0].family,
        fingerprint="".join(fingerprints),
    )


def _unit(voice: Voice) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """The embedding with the length that the flow gives it."""
    return voice.embedding / max(float(np.linalg.norm(voice.embedding)), 1e-12)
