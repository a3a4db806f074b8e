"""Weights of the flow's layers, as its kernels take them. Knows no kernel's inside."""

from __future__ import annotations

from torch import Tensor, nn

Norm = tuple[Tensor, Tensor, float]  # weight, bias, eps


class Conv:
    """A causal convolution of kernel 3, its weight by tap."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        """weight [N, C, 3], bias [N]."""
        self._weight, self._bias = weight.permute(2, 0, 1).contiguous(), bias

    def __call__(self, x: Tensor, exact: bool) -> Tensor:
        """x [B, T, C] -> [B, T, N]."""
        from cosyserve.models.flow.kernels.causal_conv import causal_conv

        return causal_conv(x, self._weight, self._bias, exact=exact)


def conv(layer: nn.Module) -> Conv:
    assert isinstance(layer, nn.Conv1d)
    return Conv(layer.weight, bias(layer))


def norm(layer: nn.Module) -> Norm:
    assert isinstance(layer, nn.LayerNorm)
    return layer.weight, layer.bias, layer.eps


def bias(layer: nn.Module) -> Tensor:
    found = layer.bias
    assert isinstance(found, Tensor)
    return found


def linear(layer: nn.Module | Tensor) -> tuple[Tensor, Tensor]:
    assert isinstance(layer, nn.Linear)
    return layer.weight, layer.bias
