"""Checkpoints become a model folder: half-precision weights, tokenizer, preset voices.

Knows no training and no corpus: a preset is the mean embedding of its voice.
"""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from cosyserve.contracts import MEL_BINS, Voice
from cosyserve.models import native
from cosyserve.models.config import ModelConfig
from cosyserve.models.parts import COUNTER, MODULES, Parts, State
from cosyserve.text import TextTokenizer
from cosyserve.voices.file import save_voice

SHARPENING = 1.25  # of the LM's logits: fewer draws from the tail of what a small corpus taught
LANGUAGES = {"a": "en-US", "b": "en-GB", "k": "en-US"}
DEFAULT = "af_heart"


def presets(voices: list[str], of_utterance: list[str], embeddings: Tensor) -> dict[str, Tensor]:
    """The mean direction of every voice's utterances."""
    found = {}
    for voice in voices:
        mine = torch.tensor([name == voice for name in of_utterance])
        found[voice] = F.normalize(embeddings[mine].float()).mean(0)
    return found


def states(folder: Path, dtype: torch.dtype, sharpening: float = SHARPENING) -> dict[str, State]:
    found = {}
    for name in MODULES:
        state = torch.load(folder / f"{name}.pt", map_location="cpu", weights_only=True)
        if name == "lm":
            state |= {key: state[key].float() * sharpening for key in ("head.weight", "head.bias")}
        found[name] = {
            key: value if key.endswith(COUNTER) else value.to(dtype) for key, value in state.items()
        }
    return found


def fingerprint(states: dict[str, State]) -> str:
    """Of the weights that make voices."""
    digest = hashlib.sha256()
    for part in ("speech_tokenizer", "speaker_encoder"):
        for key, value in sorted(states[part].items()):
            digest.update(key.encode() + value.float().numpy().tobytes())
    return digest.hexdigest()[:16]


def write(
    checkpoints: Path,
    config: ModelConfig,
    means: dict[str, Tensor],
    out: Path,
    dtype: torch.dtype = torch.float16,
) -> None:
    found = states(checkpoints, dtype)
    config = replace(config, fingerprint=fingerprint(found))
    tokenizer = TextTokenizer.from_json(checkpoints / "tokenizer.json")
    with tempfile.TemporaryDirectory() as scratch:
        files = []
        names = {name: name for name in means} | ({"default": DEFAULT} if DEFAULT in means else {})
        for name, source in names.items():
            voice = Voice(
                "",
                np.zeros(0, np.int32),
                np.zeros((0, MEL_BINS), np.float32),
                means[source].numpy(),
                name=source,
                language=LANGUAGES.get(source[0], "en"),
                family=config.family,
                fingerprint=config.fingerprint,
                created=datetime.now(UTC).isoformat(timespec="seconds"),
            )
            files.append(Path(scratch) / f"{name}.safetensors")
            save_voice(voice, files[-1])
        native.write(Parts(config, found, tokenizer=tokenizer, voices=tuple(files)), out)
