"""Rows of different lengths one behind another, without anything between them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import NamedTuple

import torch
from torch import Tensor

NOWHERE = 1 << 30  # behind all positions


class RowSpans(NamedTuple):
    """Of each position, where its row begins and where it ends: [N] int32. Behind the last row,
    positions begin at N and end at 0: they see nobody, and nobody sees them."""

    starts: Tensor
    ends: Tensor

    def positions(self) -> Tensor:
        """Of each in its own row [N]; 0 behind the last row."""
        at = torch.arange(len(self.starts), device=self.starts.device)
        return (at - self.starts).clamp_(min=0)

    def repeated(self, times: int) -> RowSpans:
        """Where every position becomes so many: [times * N]."""
        return RowSpans(*(times * part.repeat_interleave(times) for part in self))

    def up_to(self, ends: Tensor) -> RowSpans:
        """Where rows are seen up to these positions [N] only."""
        return RowSpans(self.starts, torch.where(self.ends > 0, ends, 0).int())

    def tiles(self, height: int, count: int) -> Tensor:
        """Where tiles of up to so many positions begin, each of one row, or of blanks behind rows
        (of which some may be in two): [count] int32; N behind the last one."""
        at = torch.arange(len(self.starts), device=self.starts.device)
        first = torch.cat((at[:1] == 0, self.starts[1:] != self.starts[:-1]))
        begins = (at - torch.where(first, at, 0).cummax(0).values) % height == 0
        place = torch.where(begins, begins.cumsum(0) - 1, count)
        tiles = at.new_full((count + 1,), len(at))
        return tiles.scatter_(0, place, at)[:count].int()

    def again(self) -> RowSpans:
        """The same rows once more, behind them: [2N]."""
        size = len(self.starts)
        starts, ends = self
        blank = starts == size
        starts = torch.cat((torch.where(blank, 2 * size, starts), starts + size))
        return RowSpans(starts, torch.cat((ends, torch.where(blank, 0, ends + size))))


class Hidden(NamedTuple):
    """Of each position, what it does not see of its row: [N] int32."""

    starts: Tensor  # NOWHERE: it sees all
    ends: Tensor

    @classmethod
    def between(cls, starts: Tensor, ends: Tensor) -> Hidden:
        """What lies between these positions [N], where there is any."""
        return cls(torch.where(starts < ends, starts, NOWHERE).int(), ends.int())

    def again(self) -> Hidden:
        """As `RowSpans.again`."""
        size = len(self.starts)
        return Hidden(*(torch.cat((part, part + size)) for part in self))


class Prefixes(NamedTuple):
    """How rows begin that were computed before: of each position [N] int32, the line of a memory
    that belongs to its row, how many positions the line holds, which come before the row's first
    one here, and how many of the row's first ones the line is to hold from now on."""

    lines: Tensor
    known: Tensor
    wanted: Tensor

    def again(self) -> Prefixes:
        """As `RowSpans.again`: a row and its copy have lines one behind another."""
        lines, known, wanted = self
        return Prefixes(torch.cat((lines, lines + 1)), known.repeat(2), wanted.repeat(2))


class LayerPast(NamedTuple):
    """What one layer needs of positions that came before: its memory [steps, lines, positions,
    channels], which of its steps this is [1], and whose it is."""

    memory: Tensor
    step: Tensor
    prefixes: Prefixes


class Sight(NamedTuple):
    """What each position sees: its row, up to the end of its own chunk of `chunk` [1] positions (as
    long as a row or longer: all of it), but for what is hidden. Of a prefix, each layer that looks
    back has a memory."""

    spans: RowSpans
    chunk: Tensor
    hidden: Hidden | None = None
    prefixes: Prefixes | None = None
    memories: tuple[Tensor, ...] = ()
    tiles: Tensor | None = None  # as of `RowSpans.tiles`, where a kernel wants them

    def pasts(self, step: Tensor) -> Iterator[LayerPast | None]:
        """Of the layers that look back, one after another."""
        if self.prefixes is None:
            return repeat(None)
        return (LayerPast(memory, step, self.prefixes) for memory in self.memories)


class PackedTokens(NamedTuple):
    """What an encoder is given of packed rows: S tokens, of which T become frames."""

    embedded: Tensor  # [S, D]
    given: Tensor  # [S] bool: the others are as zero
    seen: Tensor  # [T, lookahead + 1]: the tokens that each looks at, itself first
    spans: RowSpans  # [T]


def pack(counts: Tensor, size: int) -> tuple[RowSpans, Tensor]:
    """Rows of so many positions, counts [R] (0: no row) -> the spans of `size` positions, and the
    row of each [size]; behind the last row, any."""
    ends = counts.cumsum(0)
    at = torch.arange(size, device=counts.device)
    row = torch.searchsorted(ends, at, right=True).clamp_(max=len(counts) - 1)
    blank = at >= ends[-1]
    starts = torch.where(blank, size, (ends - counts)[row])
    return RowSpans(starts.int(), torch.where(blank, 0, ends[row]).int()), row
