"""The graphs of a flow's estimator. Rows are doubled for guidance.

Names are those of the original's ONNX file, where it has the input.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cosyserve.backends.estimators.engine_file import digest
from cosyserve.backends.estimators.graphs import (
    FRAMES,
    PAST,
    ROWS,
    Axes,
    NetworkGraph,
    ShapeProfile,
    Sizes,
)
from cosyserve.backends.estimators.islands import Float32Islands
from cosyserve.errors import InputError
from cosyserve.models.flow.dit import DiT, DiTCache
from cosyserve.models.flow.flow import Flow
from cosyserve.models.flow.masks import attention_bias

WHOLE, CHUNK = "flow.whole", "flow.chunk"
MAX_ROWS, MAX_FRAMES = 8, 3008  # four utterances of a minute, doubled for guidance
FRAMES_PER_SECOND = 50


class EstimatorGraph(NetworkGraph):
    def example(self, sizes: Sizes, seed: int = 0) -> dict[str, Tensor]:
        """Inputs of these sizes: noise, half a row at most hidden; times are always float32."""
        inputs = super().example(sizes, seed)
        inputs["t"] = torch.rand(sizes.rows, generator=torch.Generator().manual_seed(seed))
        if "bias" in inputs:
            bias = attention_bias(None, sizes.frames, sizes.frames // 2 + 1, inputs["bias"])
            assert bias is not None
            inputs["bias"] = bias.expand_as(inputs["bias"]).contiguous()
        return inputs

    @staticmethod
    def too_long(frames: int, most: int) -> str:
        return (
            f"prompt and speech are {frames / FRAMES_PER_SECOND:.0f} s together; the flow's engine "
            f"holds {most / FRAMES_PER_SECOND:.0f} s: use shorter text, or build it anew "
            "with a larger --max-frames and --force"
        )


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


def flow_graphs(flow: Flow) -> list[NetworkGraph]:
    """`WHOLE`: any mask over whole rows. `CHUNK`: a DiT's next chunk, with its caches."""
    mel, estimator = flow.config.mel, flow.estimator
    weights = digest(estimator, mel, flow.config.estimator)
    frames = (ROWS, mel, FRAMES)
    both: dict[str, Axes] = {"x": frames, "mu": frames, "t": (ROWS,), "spks": (ROWS, mel)}
    both |= {"cond": frames}
    bias: dict[str, Axes] = {"bias": (ROWS, 1, FRAMES, FRAMES)}
    whole = EstimatorGraph(
        WHOLE, weights, _Whole(estimator).eval(), both | bias, {"estimator_out": frames}
    )
    if not isinstance(estimator, DiT):
        return [whole]
    dit = estimator.config
    conv = (dit.depth, ROWS, 2 * dit.hidden, 2)
    attention = (dit.depth, ROWS, dit.heads, PAST, 2 * dit.head_dim)
    grown = (dit.depth, ROWS, dit.heads, "past_and_frames", 2 * dit.head_dim)
    chunk = EstimatorGraph(
        CHUNK,
        weights,
        _Chunk(estimator).eval(),
        both | {"cnn_cache": conv, "att_cache": attention},
        {"estimator_out": frames, "new_cnn_cache": conv, "new_att_cache": grown},
    )
    return [whole, chunk]


def flow_shapes(rows: int = MAX_ROWS, frames: int = MAX_FRAMES) -> ShapeProfile:
    """For so many rows of so many frames."""
    usual = Sizes(2, 500, 250)
    if rows < usual.rows or frames < usual.frames:
        raise InputError(
            f"an engine is for at least {usual.rows} rows of {usual.frames} frames, "
            f"got {rows} of {frames}"
        )
    return ShapeProfile(Sizes(1, 2), usual, Sizes(rows, frames, frames))
