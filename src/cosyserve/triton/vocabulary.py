"""The ids that travel between Triton models: those of the speech LM in its Hugging Face form.

The vocabulary is text, speech tokens, three ends, start and task. It is the same for every model,
whatever the size of the model's own text vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

from cosyserve.backends.protocols import LMRequest
from cosyserve.errors import InputError

SPEECH = 151_663  # the id of speech token 0
SPEECH_TOKENS = 6561
END = SPEECH + SPEECH_TOKENS
START, TASK = END + 3, END + 4


def prompt_ids(request: LMRequest) -> list[int]:
    """The prompt of a request: start, text, task, speech."""
    return [START, *request.text, TASK, *to_ids(request.speech)]


def parse_prompt(ids: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Text ids and speech tokens of a prompt."""
    if not ids or ids[0] != START or ids.count(TASK) != 1:
        raise InputError(f"input_ids must be {START} (start), text, {TASK} (task), speech")
    task = ids.index(TASK)
    text, speech = ids[1:task], ids[task + 1 :]
    if any(not 0 <= token < SPEECH for token in text):
        raise InputError(f"text ids must be 0..{SPEECH - 1}")
    return tuple(text), from_ids(speech)


def to_ids(tokens: Sequence[int]) -> list[int]:
    """The ids of speech tokens."""
    return [SPEECH + token for token in tokens]


def from_ids(ids: Sequence[int]) -> tuple[int, ...]:
    """The speech tokens of ids."""
    if any(not SPEECH <= token < END for token in ids):
        raise InputError(f"speech ids must be {SPEECH}..{END - 1}: speech tokens + {SPEECH}")
    return tuple(token - SPEECH for token in ids)
