"""Packed rows for tests of kernels."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TypeVar

import pytest
import torch
from torch import Tensor

from cosyserve.models.flow.packing import RowSpans, Sight, pack

BLANK = 7  # positions behind the last row
R = TypeVar("R")


def packed(rows: Sequence[Tensor]) -> tuple[Tensor, RowSpans]:
    """Rows [n, C] one behind another, and something behind them."""
    counts = torch.tensor([len(row) for row in rows] + [0], device=rows[0].device)
    together = torch.cat([*rows, torch.randn_like(rows[0][:1]).expand(BLANK, -1)])
    return together, pack(counts, len(together))[0]


def unpacked(together: Tensor, rows: Sequence[Tensor], times: int = 1) -> list[Tensor]:
    """The rows again, each `times` as long."""
    return list(together.split([times * len(row) for row in rows] + [times * BLANK])[:-1])


def make_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packs of a few frames are computed as large ones are, in small tiles."""
    from cosyserve.models.flow.kernels import linear
    from cosyserve.models.flow.kernels.attention import row as row_attention

    monkeypatch.setattr(linear, "LONE_ROWS", 0)
    monkeypatch.setattr(linear, "LARGE_ROWS", 0)
    monkeypatch.setattr(row_attention, "QUERIES", 32)
    monkeypatch.setattr(row_attention, "KEYS", 32)


def tiled(sight: Sight, runs: int = 9) -> Sight:
    """With the tiles of up to so many rows and blanks, where the pack counts as large."""
    from cosyserve.models.flow.kernels.attention.row import query_tiles

    tiles = query_tiles(sight.spans, runs)
    return sight._replace(tiles=tiles) if len(tiles) else sight


def finished(launches: Generator[None, None, R]) -> R:
    """What comes of all of them."""
    while True:
        try:
            next(launches)
        except StopIteration as end:
            result: R = end.value
            return result
