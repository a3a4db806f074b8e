"""A flow estimator that another runtime computes, called as the networks are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from torch import Tensor, nn

from cosyserve.models.config import DiTConfig
from cosyserve.models.flow.dit import DiTCache


class Graph(Protocol):
    """A network with named inputs. It takes and gives tensors of any type, on its device."""

    def __call__(self, inputs: Mapping[str, Tensor]) -> Sequence[Tensor]: ...


class ForeignEstimator(nn.Module):
    def __init__(self, whole: Graph, chunk: Graph | None, dit: DiTConfig | None) -> None:
        """`whole` is `forward` of the network. A DiT has `chunk`, which is its `extend`, too."""
        super().__init__()
        self._whole, self._chunk, self._dit = whole, chunk, dit

    def forward(
        self,
        x: Tensor,
        mu: Tensor,
        speaker: Tensor,
        prompt: Tensor,
        t: Tensor,
        bias: Tensor | None,
    ) -> Tensor:
        """As `UNet.forward`."""
        rows, _, frames = x.shape
        seen = x.new_zeros(1, 1, 1, 1) if bias is None else bias
        inputs = _inputs(x, mu, speaker, prompt, t)
        (v,) = self._whole(inputs | {"bias": seen.expand(rows, 1, frames, frames)})
        return v

    def extend(
        self,
        x: Tensor,
        mu: Tensor,
        speaker: Tensor,
        prompt: Tensor,
        t: Tensor,
        cache: DiTCache | None,
    ) -> tuple[Tensor, DiTCache]:
        """As `DiT.extend`."""
        dit, rows = self._dit, len(x)
        assert dit is not None
        assert self._chunk is not None
        if cache is None:
            cache = DiTCache(
                x.new_zeros(dit.depth, rows, 2 * dit.hidden, 2),
                x.new_zeros(dit.depth, rows, dit.heads, 0, 2 * dit.head_dim),
            )
        inputs = _inputs(x, mu, speaker, prompt, t)
        v, conv, attention = self._chunk(
            inputs | {"cnn_cache": cache.conv, "att_cache": cache.attention}
        )
        return v, DiTCache(conv, attention)


def _inputs(x: Tensor, mu: Tensor, speaker: Tensor, prompt: Tensor, t: Tensor) -> dict[str, Tensor]:
    return {"x": x, "mu": mu, "t": t, "spks": speaker, "cond": prompt}
