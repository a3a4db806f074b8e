"""Checkpoints become a model folder: small weights, tokenizer, pronouncer, preset voices.

Knows no training and no corpus.
"""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from cosyserve.checkpoints import native
from cosyserve.checkpoints.parts import COUNTER, MODULES, Parts, State, build
from cosyserve.models.config import ModelConfig
from cosyserve.models.int8 import packed, unpacked
from cosyserve.models.lm.lm import SpeechLM
from cosyserve.text import Pronouncer, TextTokenizer
from cosyserve.voices.file import save_voice
from training.presets import Arrays, voices

SHARPENING = 2.0  # of the LM's logits: fewer draws from the tail of what a small corpus taught
DEFAULT = "af_heart"
IN_EIGHT_BITS = ("lm", "flow", "speech_tokenizer")


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


def write(checkpoints: Path, config: ModelConfig, arrays: Arrays, out: Path) -> None:
    found = states(checkpoints, torch.float16)
    config = replace(config, fingerprint=fingerprint(found))
    found |= {name: packed(found[name]) for name in IN_EIGHT_BITS}
    pronouncer = Pronouncer.load(checkpoints / "pronouncer.safetensors")
    tokenizer = TextTokenizer.from_json(checkpoints / "tokenizer.json", pronouncer)
    assert config.lm
    lm = build(SpeechLM, config.lm, unpacked("lm", found["lm"]), "lm").float()
    presets = voices(lm, tokenizer, arrays, config)
    presets |= {"default": presets[DEFAULT]} if DEFAULT in presets else {}
    with tempfile.TemporaryDirectory() as scratch:
        files = [Path(scratch) / f"{name}.safetensors" for name in presets]
        for voice, file in zip(presets.values(), files, strict=True):
            save_voice(voice, file)
        native.write(Parts(config, found, tokenizer=tokenizer, voices=tuple(files)), out)


def checkpoints(model: Path, work: Path) -> None:
    """A model folder as checkpoints to go on from."""
    work.mkdir(parents=True, exist_ok=True)
    parts = native.read(model)
    for name, state in parts.states.items():
        if name == "lm":
            blunt = {key: state[key].float() / SHARPENING for key in ("head.weight", "head.bias")}
            state = state | blunt
        torch.save(state, work / f"{name}.pt")
    assert parts.tokenizer
    assert parts.tokenizer.pronouncer
    parts.tokenizer.save(work / "tokenizer.json")
    parts.tokenizer.pronouncer.save(work / "pronouncer.safetensors")
