"""A small vocoder for tests of its other forms."""

from __future__ import annotations

from dataclasses import replace

import torch

from cosyserve.models.config import VocoderConfig
from cosyserve.models.vocoder.hift import HiFT

CONFIG = VocoderConfig(
    mel=12,
    base=32,
    f0_channels=16,
    harmonics=2,
    upsample_rates=(2, 3),
    upsample_kernels=(4, 5),
    kernels=(3, 5),
    dilations=((1, 2), (1, 3)),
    source_kernels=(3, 5),
    source_dilations=((1,), (2,)),
)


def small_hift(*, causal: bool) -> HiFT:
    """Every weight is such that leaving it out is heard."""
    torch.manual_seed(0)
    vocoder = HiFT(replace(CONFIG, causal=causal)).eval().requires_grad_(False)
    for parameter in vocoder.parameters():
        if parameter.ndim == 1:
            torch.nn.init.uniform_(parameter, 0.2, 0.8)
    return vocoder
