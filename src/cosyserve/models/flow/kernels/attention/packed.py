"""Attention of packed rows, by the kernel that suits them."""

from __future__ import annotations

from torch import Tensor

from cosyserve.models.flow.kernels.attention.chunk import chunk_attention
from cosyserve.models.flow.kernels.attention.prefix import prefix_attention
from cosyserve.models.flow.kernels.attention.row import row_attention
from cosyserve.models.flow.packing import LayerPast, Sight


def attention(
    qkv: Tensor, sight: Sight, heads: int, past: LayerPast | None, *, ieee: bool
) -> Tensor:
    """qkv [N, 3 * heads * D] of packed rows -> [N, heads * D], zero behind the last row. The past's
    memory [steps, lines, frames, 2 * heads * D] has keys and values; with one, nothing is hidden.
    On a GPU a launch of torch's must lie between the writing of what sight holds and this."""
    if sight.tiles is not None:
        return row_attention(qkv, sight, heads, past, ieee=ieee)
    if past is not None:
        return prefix_attention(qkv, sight, heads, past, ieee=ieee)
    return chunk_attention(qkv, sight, heads, ieee=ieee)
