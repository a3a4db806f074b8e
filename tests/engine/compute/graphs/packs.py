"""Small flows in packs, for tests of what packs are computed by."""

from __future__ import annotations

import torch

from cosyserve.engine.compute.graphs.device_queue import DeviceQueue
from cosyserve.engine.compute.graphs.packed_flow import PackedFlow
from cosyserve.engine.compute.graphs.prefix_cache import MAX_FRAMES, PrefixCache
from cosyserve.models.config import (
    DiTConfig,
    EncoderConfig,
    FlowConfig,
    LookaheadConfig,
    RotaryDiTConfig,
    UNetConfig,
)
from cosyserve.models.flow.cfm import schedule
from cosyserve.models.flow.dit import DiT
from cosyserve.models.flow.encoder import UpsamplingConformer
from cosyserve.models.flow.flow import Flow
from cosyserve.models.flow.fused.dit import FusedDiT
from cosyserve.models.flow.fused.encoder import FusedEncoder, FusedLookahead
from cosyserve.models.flow.fused.rotary_dit import FusedRotaryDiT
from cosyserve.models.flow.fused.unet import FusedUNet
from cosyserve.models.flow.lookahead import LookaheadEncoder
from cosyserve.models.flow.rotary_dit import RotaryDiT
from cosyserve.models.flow.stream import FlowPrompt
from cosyserve.models.flow.unet import UNet

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
# The interpreter can't multiply bfloat16, and a GPU has no room for tiles of float32.
DTYPE = torch.float32 if DEVICE.type == "cpu" else torch.bfloat16
UNET = FlowConfig(
    EncoderConfig(32, 2, 48, 1, 1, chunk=10),
    UNetConfig("unet", 32, 2, 16, 1, 1),
    speech_tokens=30,
    steps=1,
)
DIT = FlowConfig(
    EncoderConfig(32, 2, 48, 1, 1),
    DiTConfig("dit", 32, 2, 2, 16, 2.0, 64, history=6),
    speech_tokens=30,
    steps=2,
)
ROTARY = FlowConfig(
    LookaheadConfig(channels=16, chunk=10),
    RotaryDiTConfig("rotary_dit", 48, 1, 3, 16),
    speech_tokens=30,
    steps=1,
)


def plain_flow_of(config: FlowConfig) -> Flow:
    torch.manual_seed(0)
    return Flow(config).eval().requires_grad_(False).to(DEVICE, DTYPE)


def packed_flow_of(flow: Flow, slots: int = 0, *, streams: bool = True) -> PackedFlow:
    """Also in float32, which `PackedFlow.of` leaves to the plain flow; `slots` for prefixes. Its
    queue waits for what there is when it is made: weights, and the prompts of a test."""
    times = [time for time, _ in schedule(flow.config.steps)]
    estimator: FusedUNet | FusedRotaryDiT | FusedDiT
    encoder: FusedEncoder | FusedLookahead
    if isinstance(flow.estimator, UNet):
        assert isinstance(flow.encoder, UpsamplingConformer)
        estimator, encoder = FusedUNet(flow.estimator, times), FusedEncoder(flow.encoder, 64)
    elif isinstance(flow.estimator, DiT):
        assert isinstance(flow.encoder, UpsamplingConformer)
        estimator, encoder = FusedDiT(flow.estimator, times), FusedEncoder(flow.encoder, 64)
    else:
        assert isinstance(flow.estimator, RotaryDiT)
        assert isinstance(flow.encoder, LookaheadEncoder)
        estimator = FusedRotaryDiT(flow.estimator, times, 128)
        encoder = FusedLookahead(flow.encoder)
    prefixes = PrefixCache(flow, estimator.pasts(MAX_FRAMES), slots) if slots else None
    queue = DeviceQueue(DEVICE, static=True)
    return PackedFlow(flow, queue, 4, encoder, estimator, prefixes, streams=streams)


def prompt_of(tokens: int) -> FlowPrompt:
    return FlowPrompt(
        torch.randint(0, 30, (tokens,), device=DEVICE),
        torch.randn(2 * tokens, 80, device=DEVICE, dtype=DTYPE),
        torch.randn(192, device=DEVICE, dtype=DTYPE),
    )
