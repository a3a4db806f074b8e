"""A tiny model with random weights, to try the server without a download: its output is no speech.

Architecture and code are those of a real model; weights are seeded.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from cosyserve.checkpoints.parts import MODULES, Parts, blank
from cosyserve.models.config import (
    CamPlusConfig,
    EncoderConfig,
    FlowConfig,
    LMConfig,
    ModelConfig,
    S3Config,
    UNetConfig,
    VocoderConfig,
)
from cosyserve.text import byte_tokenizer

NAME = "test"


def random_parts(config: ModelConfig | None = None) -> Parts:
    """Parts of the test model, or of another size; always the same."""
    tokenizer = byte_tokenizer()
    config = config or ModelConfig(
        name=NAME,
        lm=LMConfig(64, 160, 2, 4, 2, text_vocab=tokenizer.vocab_size),
        flow=FlowConfig(
            EncoderConfig(64, 4, 96, 2, 1), UNetConfig("unet", 32, 2, 16, 1, 2), steps=4
        ),
        vocoder=VocoderConfig(base=32, f0_channels=32),
        speech_tokenizer=S3Config(state=64, heads=1, layers=1),
        speaker_encoder=CamPlusConfig(
            head_channels=4, init_channels=16, growth=8, bn_size=2, block_layers=(2, 2, 2)
        ),
        fingerprint="test",
        speech=False,
    )
    generator = torch.Generator().manual_seed(0)
    states = {}
    for name, module in MODULES.items():
        shapes = blank(module, getattr(config, name)).state_dict()
        states[name] = {
            key: _weight(key, value, generator) for key, value in sorted(shapes.items())
        }
    # Random weights alone would speak for ever, and as loud as numbers go.
    states["lm"]["head.bias"][config.lm.eos if config.lm else 0] = 6.0
    for weight in states["vocoder"].values():
        if weight.ndim == 3:
            weight *= 0.7
    states["vocoder"]["conv_post.bias"][:9] = -2.0
    return Parts(config, states, tokenizer=tokenizer)


def _weight(key: str, like: Tensor, generator: torch.Generator) -> Tensor:
    if not like.is_floating_point():
        return torch.zeros(like.shape, dtype=like.dtype)
    if key.endswith(("running_var", "alpha")) or (like.ndim == 1 and key.endswith("weight")):
        return torch.ones(like.shape)
    if key.endswith("f0_predictor.classifier.weight"):
        return torch.rand(like.shape, generator=generator) * 40.0  # Hz: mostly voiced
    scale = 1.0 if "embedding" in key else 1.0 / math.sqrt(max(1, like[0].numel()))
    return torch.randn(like.shape, generator=generator) * scale
