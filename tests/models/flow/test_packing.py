"""Rows one behind another."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.models.flow.packing import pack


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 5), st.integers(0, 3))
def test_every_position_knows_its_row(lengths: list[int], blank: int, absent: int) -> None:
    counts = torch.tensor(lengths + [0] * absent)
    size = sum(lengths) + blank
    spans, row = pack(counts, size)
    at = [(n, position) for n, length in enumerate(lengths) for position in range(length)]
    assert list(zip(row.tolist(), spans.positions().tolist(), strict=True))[: len(at)] == at
    for frames, times in ((spans, 1), (spans.repeated(2), 2)):
        begin = 0
        for length in lengths:
            end = begin + times * length
            assert frames.starts[begin:end].eq(begin).all()
            assert frames.ends[begin:end].eq(end).all()
            begin = end
        assert frames.starts[begin:].eq(times * size).all()
        assert frames.ends[begin:].eq(0).all()


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 5))
def test_rows_once_more_stand_behind_them(lengths: list[int], blank: int) -> None:
    size = sum(lengths) + blank
    both = pack(torch.tensor(lengths), size)[0].again()
    for half, begin in ((slice(size), 0), (slice(size, None), size)):
        first = begin
        for length in lengths:
            at = slice(first, first + length)
            assert both.starts[at].eq(first).all()
            assert both.ends[at].eq(first + length).all()
            first += length
        assert both.starts[half][first - begin :].eq(2 * size).all()
        assert both.ends[half][first - begin :].eq(0).all()
