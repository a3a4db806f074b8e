"""Importing `spk2info.pt`, in both of its historic forms.

One form comes from the original's Python API (token ids as prompt text, one tensor per use), the
other from its Triton runtime (prompt text as a string). Only plain tensors are unpickled.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cosyserve.checkpoints.plain_files import is_plain, kind, unpickle
from cosyserve.contracts import FRAMES_PER_TOKEN, MEL_BINS, Voice
from cosyserve.errors import CheckpointError, VoiceError
from cosyserve.text import TextTokenizer

MAX_ARRAY_BYTES = 4 << 20  # 30 s of prompt mel have 0.5 MB
INTEGERS = (torch.int32, torch.int64)
FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def import_spk2info(
    file: Path, tokenizer: TextTokenizer | None, family: str = "cosyvoice2"
) -> dict[str, Voice]:
    """All speakers of a file, by id. The tokenizer turns prompt ids back into text; `family` is the
    one of the model that made them, which the file doesn't say."""
    try:
        speakers = unpickle(file)
    except CheckpointError as error:
        raise VoiceError(f"{error}: not a speaker file") from error
    if not isinstance(speakers, dict):
        raise VoiceError(f"{file}: expected a dict of speakers")
    if not all(isinstance(name, str) for name in speakers):
        raise VoiceError(f"{file}: a speaker's name is no text")
    voices = {}
    for name, info in speakers.items():
        try:
            voices[name] = replace(_voice(name, info, tokenizer), family=family)
        except VoiceError as error:
            raise VoiceError(f"{file}: speaker {name!r:.80}: {error}") from error
    return voices


def _voice(name: str, info: Any, tokenizer: TextTokenizer | None) -> Voice:
    if not isinstance(info, dict):
        raise VoiceError(f"expected a dict, got a {type(info).__name__}")
    if "speech_token" in info:  # Triton runtime
        text = info.get("prompt_text")
        tokens, mel, embedding = "speech_token", "speech_feat", "embedding"
    elif "flow_prompt_speech_token" in info:  # Python API
        text = _decoded(info, tokenizer)
        tokens, mel, embedding = "flow_prompt_speech_token", "prompt_speech_feat", "flow_embedding"
    elif "embedding" in info:  # a preset: no prompt
        empty, no_mel = np.zeros(0, np.int32), np.zeros((0, MEL_BINS), np.float32)
        return Voice("", empty, no_mel, _floats(info, "embedding").reshape(-1), name=name)
    else:
        keys = ", ".join(key for key in list(info)[:6] if isinstance(key, str))
        raise VoiceError(f"neither of the known forms; has {keys:.200}")
    if not isinstance(text, str) or not _is_unicode(text):
        raise VoiceError("'prompt_text' is no text")
    ids, frames = _ints(info, tokens), _floats(info, mel)
    if frames.shape[-1] != MEL_BINS:
        raise VoiceError(f"'{mel}' must have {MEL_BINS} bins, has shape {list(frames.shape)}")
    frames = frames.reshape(-1, MEL_BINS)
    count = min(len(ids), len(frames) // FRAMES_PER_TOKEN)
    if not count:
        raise VoiceError(f"'{tokens}' or '{mel}' is empty")
    return Voice(
        prompt_text=text,
        speech_tokens=ids[:count].astype(np.int32),
        mel=frames[: FRAMES_PER_TOKEN * count],
        embedding=_floats(info, embedding).reshape(-1),
        name=name,
    )


def _decoded(info: dict[str, Any], tokenizer: TextTokenizer | None) -> str:
    if tokenizer is None:
        raise VoiceError("its prompt text is token ids: name the model with --model")
    ids = _ints(info, "prompt_text").tolist()
    if ids and max(ids) >= tokenizer.vocab_size:
        raise VoiceError("'prompt_text' holds ids that the model's tokenizer lacks")
    return tokenizer.decode(ids, skip_special=False)


def _ints(info: dict[str, Any], key: str) -> Any:
    ids = _tensor(info, key, INTEGERS).reshape(-1).numpy()
    if ids.size and not 0 <= ids.min() <= ids.max() < 1 << 31:
        raise VoiceError(f"'{key}' holds numbers that are no ids")
    return ids


def _floats(info: dict[str, Any], key: str) -> Any:
    return _tensor(info, key, FLOATS).to(torch.float32).numpy()


def _tensor(info: dict[str, Any], key: str, dtypes: tuple[torch.dtype, ...]) -> Tensor:
    value = info.get(key)
    if value is None:
        raise VoiceError(f"'{key}' is missing")
    if not is_plain(value, MAX_ARRAY_BYTES) or not value.ndim or value.dtype not in dtypes:
        raise VoiceError(f"'{key}' must be a small tensor of {dtypes[0]}, is {kind(value)}")
    tensor: Tensor = value.detach()
    return tensor


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)
