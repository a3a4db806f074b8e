"""What other runtimes compute of a flow: graphs with named inputs whose sizes vary.

Names are those of the original's ONNX files, where it has the input.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from cosyserve.backends.estimators.islands import Float32Islands
from cosyserve.errors import InputError
from cosyserve.models.flow.dit import DiT, DiTCache
from cosyserve.models.flow.flow import Flow
from cosyserve.models.flow.masks import attention_bias

ROWS, FRAMES, PAST = "rows", "frames", "past"  # axes: rows are doubled for guidance
Axes = tuple[int | str, ...]


@dataclass(frozen=True)
class Sizes:
    """How long each axis is."""

    rows: int
    frames: int
    past: int  # frames that caches hold

    def of(self, axes: Axes) -> tuple[int, ...]:
        return tuple(getattr(self, axis) if isinstance(axis, str) else axis for axis in axes)


@dataclass(frozen=True)
class ShapeProfile:
    """The sizes that an engine is built for."""

    smallest: Sizes
    usual: Sizes
    largest: Sizes

    @classmethod
    def upto(cls, rows: int, frames: int) -> ShapeProfile:
        """For so many rows of so many frames; 50 frames are a second."""
        usual = Sizes(2, 500, 250)
        if rows < usual.rows or frames < usual.frames:
            raise InputError(
                f"an engine is for at least {usual.rows} rows of {usual.frames} frames, "
                f"got {rows} of {frames}"
            )
        return cls(Sizes(1, 2, 0), usual, Sizes(rows, frames, frames))


@dataclass(frozen=True)
class EstimatorGraph:
    """A network, and the axes of what goes in and comes out."""

    name: str
    network: nn.Module
    inputs: Mapping[str, Axes]
    outputs: Mapping[str, Axes]

    def cast(self, dtype: torch.dtype) -> EstimatorGraph:
        """The graph with weights of another precision; times remain float32."""
        if next(self.network.parameters()).dtype is dtype:
            return self
        return replace(self, network=copy.deepcopy(self.network).to(dtype))

    def example(self, sizes: Sizes, seed: int = 0) -> dict[str, Tensor]:
        """Inputs of these sizes: noise, half a row at most hidden."""
        dtype, random = next(self.network.parameters()).dtype, torch.Generator().manual_seed(seed)
        inputs = {
            name: torch.randn(sizes.of(axes), generator=random).to(dtype)
            for name, axes in self.inputs.items()
        }
        inputs["t"] = torch.rand(sizes.rows, generator=random)
        if "bias" in inputs:
            bias = attention_bias(None, sizes.frames, sizes.frames // 2 + 1, inputs["bias"])
            assert bias is not None
            inputs["bias"] = bias.expand_as(inputs["bias"]).contiguous()
        return inputs

    @torch.inference_mode()
    def compute(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """What the graph gives in torch."""
        outputs: tuple[Tensor, ...] = self.network(*(inputs[name] for name in self.inputs))
        return outputs


class _Whole(nn.Module):
    def __init__(self, estimator: nn.Module) -> None:
        super().__init__()
        self.estimator = estimator

    def forward(
        self, x: Tensor, mu: Tensor, t: Tensor, spks: Tensor, cond: Tensor, bias: Tensor
    ) -> tuple[Tensor]:
        with Float32Islands():
            return (self.estimator(x, mu, spks, cond, t, bias),)


class _Chunk(nn.Module):
    def __init__(self, estimator: DiT) -> None:
        super().__init__()
        self.estimator = estimator

    def forward(
        self,
        x: Tensor,
        mu: Tensor,
        t: Tensor,
        spks: Tensor,
        cond: Tensor,
        cnn_cache: Tensor,
        att_cache: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        with Float32Islands():
            v, cache = self.estimator.extend(x, mu, spks, cond, t, DiTCache(cnn_cache, att_cache))
        return v, cache.conv, cache.attention


def graphs_of(flow: Flow) -> list[EstimatorGraph]:
    """`whole`: any mask over whole rows. `chunk`: a DiT's next chunk, with its caches."""
    mel, estimator = flow.config.mel, flow.estimator
    frames = (ROWS, mel, FRAMES)
    both: dict[str, Axes] = {"x": frames, "mu": frames, "t": (ROWS,), "spks": (ROWS, mel)}
    both |= {"cond": frames}
    bias: dict[str, Axes] = {"bias": (ROWS, 1, FRAMES, FRAMES)}
    whole = EstimatorGraph("whole", _Whole(estimator), both | bias, {"estimator_out": frames})
    if not isinstance(estimator, DiT):
        return [whole]
    dit = estimator.config
    conv = (dit.depth, ROWS, 2 * dit.hidden, 2)
    attention = (dit.depth, ROWS, dit.heads, PAST, 2 * dit.head_dim)
    grown = (dit.depth, ROWS, dit.heads, "past_and_frames", 2 * dit.head_dim)
    chunk = EstimatorGraph(
        "chunk",
        _Chunk(estimator),
        both | {"cnn_cache": conv, "att_cache": attention},
        {"estimator_out": frames, "new_cnn_cache": conv, "new_att_cache": grown},
    )
    return [whole, chunk]
