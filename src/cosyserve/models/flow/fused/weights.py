"""Weights of the flow's layers, as its kernels take them."""

from __future__ import annotations

from torch import Tensor, nn

from cosyserve.models.flow.kernels.causal_conv import causal_conv
from cosyserve.models.flow.kernels.linear import Norm
from cosyserve.models.flow.packing import LayerPast, RowSpans


class Conv:
    """A causal convolution of kernel 3, its weight by tap."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        """weight [N, C, 3], bias [N]."""
        self._weight = weight.permute(2, 0, 1).contiguous()
        self._bias = bias

    @property
    def past(self) -> tuple[int, int]:
        """Frames and channels that it needs of what came before."""
        taps, _, channels = self._weight.shape
        return taps - 1, channels

    def __call__(
        self, x: Tensor, spans: RowSpans, ieee: bool, past: LayerPast | None = None
    ) -> Tensor:
        """x [T, C] of packed rows -> [T, N]."""
        return causal_conv(x, spans, self._weight, self._bias, past, ieee=ieee)


def conv(layer: nn.Module) -> Conv:
    assert isinstance(layer, nn.Conv1d)
    return Conv(layer.weight, bias(layer))


def norm(layer: nn.Module) -> Norm:
    assert isinstance(layer, nn.LayerNorm)
    return layer.weight, layer.bias, layer.eps


def bias(layer: nn.Module) -> Tensor:
    assert isinstance(layer.bias, Tensor)
    return layer.bias


def linear(layer: nn.Module | Tensor) -> tuple[Tensor, Tensor]:
    assert isinstance(layer, nn.Linear)
    return layer.weight, layer.bias
