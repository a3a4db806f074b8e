"""The networks in few launches, where there are kernels for the device.

Kernels need the package `triton`: what uses them is imported here, after a look at the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from cosyserve.models.flow.dit import DiT
from cosyserve.models.flow.encoder import UpsamplingConformer
from cosyserve.models.flow.lookahead import LookaheadEncoder
from cosyserve.models.flow.rotary_dit import RotaryDiT
from cosyserve.models.flow.unet import UNet
from cosyserve.models.kernels import kernels_supported
from cosyserve.models.lm.lm import SpeechLM
from cosyserve.models.vocoder.hift import HiFT

if TYPE_CHECKING:
    from cosyserve.models.flow.fused.dit import FusedDiT
    from cosyserve.models.flow.fused.encoder import FusedEncoder, FusedLookahead
    from cosyserve.models.flow.fused.rotary_dit import FusedRotaryDiT
    from cosyserve.models.flow.fused.unet import FusedUNet
    from cosyserve.models.lm.fused import FusedLM
    from cosyserve.models.vocoder.fused import FusedHiFT

DTYPE = torch.bfloat16  # of LM and flow: float16 can't hold products before their norm
MAX_ENCODER_SIZE = 512  # channels: kernels hold whole rows


def fused_lm(lm: SpeechLM, positions: int) -> FusedLM | None:
    """The LM in few launches, where its kernels are quick: float32 has no matrix units."""
    weight = lm.head.weight
    if not kernels_supported(weight.device) or weight.dtype is not DTYPE:
        return None
    from cosyserve.models.lm.fused import FusedLM

    return FusedLM(lm, positions)


def fused_estimator(
    estimator: nn.Module, times: Sequence[float], max_frames: int
) -> FusedUNet | FusedRotaryDiT | FusedDiT | None:
    """An estimator in few launches, where its kernels are quick; `times` of the Euler steps, rows
    of at most `max_frames`."""
    weight = next(estimator.parameters())
    if not kernels_supported(weight.device) or weight.dtype is not DTYPE:
        return None
    if isinstance(estimator, RotaryDiT):
        from cosyserve.models.flow.fused.rotary_dit import FusedRotaryDiT

        return FusedRotaryDiT(estimator, times, max_frames)
    if isinstance(estimator, DiT):
        from cosyserve.models.flow.fused.dit import FusedDiT

        return FusedDiT(estimator, times)
    if isinstance(estimator, UNet):
        from cosyserve.models.flow.fused.unet import FusedUNet

        return FusedUNet(estimator, times)
    return None


def fused_encoder(encoder: nn.Module, max_tokens: int) -> FusedEncoder | FusedLookahead | None:
    """The flow's encoder in few launches, where its kernels are quick; for rows of at most
    `max_tokens`."""
    weight = next(encoder.parameters())
    if not kernels_supported(weight.device) or weight.dtype is not DTYPE:
        return None
    if isinstance(encoder, LookaheadEncoder):
        from cosyserve.models.flow.fused.encoder import FusedLookahead

        return FusedLookahead(encoder)
    if isinstance(encoder, UpsamplingConformer) and encoder.config.size <= MAX_ENCODER_SIZE:
        from cosyserve.models.flow.fused.encoder import FusedEncoder

        return FusedEncoder(encoder, max_tokens)
    return None


def fused_hift(vocoder: HiFT) -> FusedHiFT | None:
    """The vocoder in few launches, where its kernels are quick."""
    weight, dilations = vocoder.conv_pre.weight, vocoder.config.dilations
    if not kernels_supported(weight.device) or weight.dtype is not torch.float32:
        return None
    if len({len(block) for block in dilations}) > 1:  # blocks of a stage run side by side
        return None
    from cosyserve.models.vocoder.fused import FusedHiFT

    return FusedHiFT(vocoder)
