"""The ids in which Triton models speak: those of the speech LM in its Hugging Face form.

Text, then speech tokens, three ends, start and task. The same for every model, whatever the size
of its own text vocabulary. Knows no tensor.
"""

from __future__ import annotations

from collections.abc import Sequence

from cosyserve.backends.protocols import LMRequest
from cosyserve.errors import InputError

SPEECH = 151_663  # the id of speech token 0
SPEECH_TOKENS = 6561
END = SPEECH + SPEECH_TOKENS
START, TASK = END + 3, END + 4


def asked(request: LMRequest) -> list[int]:
    """What a request is in ids: start, text, task, speech."""
    return [START, *request.text, TASK, *spoken(request.speech)]


def understood(ids: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Text ids and speech tokens of a prompt."""
    if not ids or ids[0] != START or ids.count(TASK) != 1:
        raise InputError(f"input_ids must be {START} (start), text, {TASK} (task), speech")
    task = ids.index(TASK)
    text, speech = ids[1:task], ids[task + 1 :]
    if any(not 0 <= token < SPEECH for token in text):
        raise InputError(f"text ids must be 0..{SPEECH - 1}")
    return tuple(text), heard(speech)


def spoken(tokens: Sequence[int]) -> list[int]:
    return [SPEECH + token for token in tokens]


def heard(ids: Sequence[int]) -> tuple[int, ...]:
    if any(not SPEECH <= token < END for token in ids):
        raise InputError(f"speech ids must be {SPEECH}..{END - 1}: speech tokens + {SPEECH}")
    return tuple(token - SPEECH for token in ids)
