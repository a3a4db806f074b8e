"""Networks as other runtimes compute them: graphs with named inputs whose sizes vary."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor, nn

ROWS, FRAMES, PAST = "rows", "frames", "past"  # axes
Axes = tuple[int | str, ...]


@dataclass(frozen=True)
class Sizes:
    """How long each axis is."""

    rows: int
    frames: int
    past: int = 0  # frames that caches hold

    def of(self, axes: Axes) -> tuple[int, ...]:
        return tuple(getattr(self, axis) if isinstance(axis, str) else axis for axis in axes)


@dataclass(frozen=True)
class ShapeProfile:
    """The sizes that an engine is built for."""

    smallest: Sizes
    usual: Sizes
    largest: Sizes


@dataclass(frozen=True)
class NetworkGraph:
    """A network, and the axes of what goes in and comes out."""

    name: str
    digest: str  # of its weights and sizes
    network: nn.Module
    inputs: Mapping[str, Axes]
    outputs: Mapping[str, Axes]

    def cast(self, dtype: torch.dtype) -> Self:
        """The graph with weights of another precision."""
        if next(self.network.parameters()).dtype is dtype:
            return self
        return replace(self, network=copy.deepcopy(self.network).to(dtype))

    def example(self, sizes: Sizes, seed: int = 0) -> dict[str, Tensor]:
        """Inputs of these sizes: noise."""
        dtype, random = next(self.network.parameters()).dtype, torch.Generator().manual_seed(seed)
        return {
            name: torch.randn(sizes.of(axes), generator=random).to(dtype)
            for name, axes in self.inputs.items()
        }

    @torch.inference_mode()
    def compute(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """What the graph gives in torch."""
        outputs: tuple[Tensor, ...] = self.network(*(inputs[name] for name in self.inputs))
        return outputs

    @staticmethod
    def too_long(frames: int, most: int) -> str:
        """What to say of so many frames where an engine takes no more than `most`."""
        raise NotImplementedError
