"""The U-Net estimator in few launches, for a GPU. `UNet` is its reference.

Frames are lines of channels throughout, all rows one behind another, so that a transformer block is
five kernels (with many rows, seven) and a ResNet block four; what depends on the time alone is
computed once for all Euler steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyserve.models.flow.fused.weights import Conv, bias, conv, linear, norm
from cosyserve.models.flow.kernels import euler
from cosyserve.models.flow.kernels.attention import row as row_attention
from cosyserve.models.flow.kernels.attention.packed import attention
from cosyserve.models.flow.kernels.linear import is_large, linear_add, norm_mish
from cosyserve.models.flow.kernels.norm_linear import (
    FoldedLinear,
    fold_norm,
    large_norm_linear,
    layer_norm_linear,
)
from cosyserve.models.flow.packing import LayerPast, RowSpans, Sight
from cosyserve.models.flow.unet import ResNet, TransformerBlock, UNet, UNetStage, time_sinusoid
from cosyserve.models.kernels import gluon

if TYPE_CHECKING:
    from cosyserve.models.flow.kernels.between.weights import Between, Linear

CHAIN_ROWS = 8192  # from which on a launch between two attentions is quicker than several


class FusedUNet:
    euler = staticmethod(euler.euler)
    max_tiles = staticmethod(row_attention.max_tiles)
    query_tiles = staticmethod(row_attention.query_tiles)

    def __init__(self, unet: UNet, times: Sequence[float]) -> None:
        """`times` of the Euler steps."""
        weight = unet.final_proj.weight
        self.ieee = weight.dtype is torch.float32
        time = time_sinusoid(torch.tensor(times, device=weight.device), unet.channels_in)
        time = unet.time_mlp["linear_1"](time.to(weight.dtype))
        time = unet.time_mlp["linear_2"](F.silu(time))
        self._down, *self._middle, self._up = (_Stage(stage, time) for stage in unet._stages())
        self._final = conv(unet.final_block.block["0"])
        self._final_norm = norm(unet.final_block.block["2"])
        self._proj = unet.final_proj.weight[:, :, 0].contiguous(), bias(unet.final_proj)

    def pasts(self, frames: int) -> list[tuple[int, int]]:
        """Places and channels that each layer needs of a prefix of so many frames, in the order in
        which a call comes to them."""
        down, middle, up = (
            [place for stage in stages for place in stage.pasts(frames)]
            for stages in ([self._down], self._middle, [self._up])
        )
        return [*down, *middle, *up, self._final.past]

    def __call__(self, x: Tensor, step: Tensor, sight: Sight) -> Tensor:
        """As `UNet.forward`, of packed rows x [T, 4 mel] (frames of what `stack_inputs` gives), at
        the time of Euler step `step` [1] -> [T, mel]."""
        call = _Call(step, sight, self.ieee, sight.pasts(step))
        skip = self._down.transform(x, call)
        x = self._down.convolve(skip, call)
        for stage in self._middle:
            x = stage.transform(x, call)
        x = self._up.transform(torch.cat((x, skip), dim=1), call)
        x = self._final(self._up.convolve(x, call), call.spans, self.ieee, next(call.pasts))
        y = norm_mish(x, self._final_norm, None, step)
        return linear_add(y, *self._proj, None, ieee=self.ieee)


class _Call(NamedTuple):
    """What all layers of a call share."""

    step: Tensor
    sight: Sight
    ieee: bool
    pasts: Iterator[LayerPast | None]

    @property
    def spans(self) -> RowSpans:
        return self.sight.spans


class _Stage:
    def __init__(self, stage: UNetStage, time: Tensor) -> None:
        resnet, blocks = stage[0], stage[1]
        assert isinstance(resnet, ResNet)
        assert isinstance(blocks, nn.ModuleList)
        self._time = resnet.mlp(time)  # [steps, channels]
        self._enter = _entering(resnet)
        self._again = conv(resnet.block2.block["0"])
        self._norms = [norm(block.block["2"]) for block in (resnet.block1, resnet.block2)]
        transformers = [block for block in blocks if isinstance(block, TransformerBlock)]
        biases = [bias(layer).float() for block in transformers for layer in _adding(block)]
        total = sum(biases, torch.zeros_like(self._time[0], dtype=torch.float32))
        self._biases = total.repeat(len(time), 1)
        early = list(accumulate(biases, torch.sub, initial=total))
        self._blocks = [
            _Block(block, early[2 * n], early[2 * n + 1]) for n, block in enumerate(transformers)
        ]
        self._chain = _chain(self._blocks, time.device)
        self._conv = conv(stage[2]) if len(stage) > 2 else None

    def pasts(self, frames: int) -> list[tuple[int, int]]:
        blocks = [(frames, block.keys_values) for block in self._blocks]
        last = [self._conv.past] if self._conv else []
        return [self._enter.past, self._again.past, *blocks, *last]

    def transform(self, x: Tensor, call: _Call) -> Tensor:
        """x [T, C] -> [T, C], without the last convolution."""
        first, second = self._norms
        h, direct = self._enter(x, call.spans, call.ieee, next(call.pasts)).chunk(2, dim=1)
        y = norm_mish(h, first, self._time, call.step)
        h = self._again(y, call.spans, call.ieee, next(call.pasts))
        # A program of the chain has a processor to itself: no first chunk is to wait for that.
        whole = call.sight.prefixes is None
        if self._chain and whole and len(h) >= CHAIN_ROWS:
            y = norm_mish(h, second, None, call.step, direct)
            self._attend_in_chain(y, call)
            return y
        if is_large(len(h)):
            y = norm_mish(h, second, self._biases, call.step, direct)
            for block in self._blocks:
                block.add_to(y, call)
            return y
        y = norm_mish(h, second, None, call.step, direct)
        for block in self._blocks:
            y = block(y, call)
        return y

    def _attend_in_chain(self, x: Tensor, call: _Call) -> None:
        """The transformer blocks of very many rows, in place."""
        from cosyserve.models.flow.kernels.between.block import between

        attended = None
        for block, following in pairwise((None, *self._chain, None)):
            qkv = between(attended, x, block, following)
            if qkv is not None:
                attended = self._blocks[0].attend(qkv, call)

    def convolve(self, x: Tensor, call: _Call) -> Tensor:
        assert self._conv
        return self._conv(x, call.spans, call.ieee, next(call.pasts))


class _Block:
    """A transformer block; query, key and value are one product.

    With many rows the library adds products to the residual where it is, but no biases beside them:
    those of all blocks of a stage are in it from the beginning, and norms leave out those that are
    early.
    """

    def __init__(self, block: TransformerBlock, early: Tensor, early_between: Tensor) -> None:
        """Biases [C] that the residual has too early where the block begins, and between its
        parts."""
        attention, forward = block.attn1, block.ff.net
        self._heads = attention.heads
        parts = (attention.to_q.weight, attention.to_k.weight, attention.to_v.weight)
        self._qkv = fold_norm(norm(block.norm1), torch.cat(parts), None)
        self.keys_values = 2 * len(attention.to_k.weight)  # numbers of a frame
        out, narrow = _adding(block)
        self._out, self._narrow = linear(out), linear(narrow)
        self._widen = fold_norm(norm(block.norm3), *linear(forward["0"].proj))
        self._early, self._early_between = early, early_between

    @property
    def layers(self) -> tuple[FoldedLinear, Linear, FoldedLinear, Linear]:
        return self._qkv, self._out, self._widen, self._narrow

    def attend(self, qkv: Tensor, call: _Call) -> Tensor:
        return attention(qkv, call.sight, self._heads, next(call.pasts), ieee=call.ieee)

    def __call__(self, x: Tensor, call: _Call) -> Tensor:
        """x [T, C]."""
        ieee = call.ieee
        qkv = layer_norm_linear(x, self._qkv, act="none", ieee=ieee)
        y = self.attend(qkv, call)
        x = linear_add(y, *self._out, x, ieee=ieee)
        y = layer_norm_linear(x, self._widen, act="gelu", ieee=ieee)
        return linear_add(y, *self._narrow, x, ieee=ieee)

    def add_to(self, x: Tensor, call: _Call) -> None:
        """The same of many rows, in place, with biases that come early."""
        ieee = call.ieee
        qkv = large_norm_linear(x, self._early, self._qkv, act="none", ieee=ieee)
        y = self.attend(qkv, call)
        x.addmm_(y, self._out[0].T)
        y = large_norm_linear(x, self._early_between, self._widen, act="gelu", ieee=ieee)
        x.addmm_(y, self._narrow[0].T)


def _chain(blocks: Sequence[_Block], device: torch.device) -> Sequence[Between]:
    """The blocks' weights for launches between attentions; none where there is no such kernel."""
    if not gluon(device):
        return ()
    from cosyserve.models.flow.kernels.between.weights import fits, ordered

    layers = [block.layers for block in blocks]
    return [ordered(*each) for each in layers] if all(fits(*each) for each in layers) else ()


def _adding(block: TransformerBlock) -> tuple[nn.Module, nn.Module]:
    """The layers that add to the residual."""
    return block.attn1.to_out[0], block.ff.net["2"]


def _entering(resnet: ResNet) -> Conv:
    """A ResNet block's first convolution, and beside it that of one frame: one launch."""
    first, direct = resnet.block1.block["0"], resnet.res_conv
    assert isinstance(first, nn.Conv1d)
    weight = torch.cat((first.weight, F.pad(direct.weight, (first.weight.shape[2] - 1, 0))))
    return Conv(weight, torch.cat((bias(first), bias(direct))))
