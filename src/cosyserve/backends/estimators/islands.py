"""Float32 where half a precision is too little: norms, and the weights of attention.

TensorRT is told every type (strongly typed), so that what a graph computes in float32 has to be
written into it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode


class Float32Islands(TorchFunctionMode):
    """Inside, networks compute norms and softmax in float32; the rest as before."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        island = ISLANDS.get(func, func)
        return island(*args, **(kwargs or {}))


def _layer_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    scale, shift = (None if part is None else part.float() for part in (weight, bias))
    sizes = [int(size) for size in normalized_shape]  # a tracer takes them for variables
    return F.layer_norm(x.float(), sizes, scale, shift, eps).to(x.dtype)


def _attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
    scores: Tensor = ((q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)).float()
    if bias is not None:
        scores = scores + bias.float()
    weights: Tensor = scores.softmax(-1).to(v.dtype)
    return weights @ v


ISLANDS: dict[Callable[..., Any], Callable[..., Any]] = {
    F.layer_norm: _layer_norm,
    F.scaled_dot_product_attention: _attention,
}
