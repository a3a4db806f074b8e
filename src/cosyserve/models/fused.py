"""The networks in few launches, where there are kernels for the device.

Kernels need the package `triton`: what uses them is imported here, after a look at the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from cosyserve.models.flow.encoder import UpsamplingConformer
from cosyserve.models.flow.unet import UNet
from cosyserve.models.kernels import kernels_supported
from cosyserve.models.lm.lm import SpeechLM
from cosyserve.models.vocoder.hift import HiFT

if TYPE_CHECKING:
    from cosyserve.models.flow.fused_encoder import FusedEncoder
    from cosyserve.models.flow.fused_unet import FusedUNet
    from cosyserve.models.lm.fused import FusedLM
    from cosyserve.models.vocoder.fused import FusedHiFT

MAX_ENCODER_SIZE = 512  # channels: kernels hold whole rows


def fused_lm(lm: SpeechLM, positions: int) -> FusedLM | None:
    """The LM in few launches, where its kernels are quick: float16 can't hold products before their
    norm, and float32 has no matrix units."""
    weight = lm.head.weight
    if not kernels_supported(weight.device) or weight.dtype is not torch.bfloat16:
        return None
    from cosyserve.models.lm.fused import FusedLM

    return FusedLM(lm, positions)


def fused_unet(unet: nn.Module, times: Sequence[float]) -> FusedUNet | None:
    """The U-Net in few launches, where its kernels are quick; `times` of the Euler steps."""
    if not isinstance(unet, UNet):
        return None
    weight = unet.final_proj.weight
    if not kernels_supported(weight.device) or weight.dtype is not torch.bfloat16:
        return None
    from cosyserve.models.flow.fused_unet import FusedUNet

    return FusedUNet(unet, times)


def fused_encoder(encoder: nn.Module, max_tokens: int) -> FusedEncoder | None:
    """The encoder in few launches, where its kernels are quick; for rows of at most `max_tokens`
    (0: there are none)."""
    if not isinstance(encoder, UpsamplingConformer):
        return None
    weight = encoder.after_norm.weight
    if not kernels_supported(weight.device) or weight.dtype is not torch.bfloat16:
        return None
    if max_tokens == 0 or encoder.config.size > MAX_ENCODER_SIZE:
        return None
    from cosyserve.models.flow.fused_encoder import FusedEncoder

    return FusedEncoder(encoder, max_tokens)


def fused_hift(vocoder: HiFT) -> FusedHiFT | None:
    """The vocoder in few launches, where its kernels are quick."""
    weight, dilations = vocoder.conv_pre.weight, vocoder.config.dilations
    if vocoder.config.causal:
        return None
    if not kernels_supported(weight.device) or weight.dtype is not torch.float32:
        return None
    if len({len(block) for block in dilations}) > 1:  # blocks of a stage run side by side
        return None
    from cosyserve.models.vocoder.fused import FusedHiFT

    return FusedHiFT(vocoder)
