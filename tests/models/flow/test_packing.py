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


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=6),
    st.integers(0, 20),
    st.sampled_from([1, 4, 16]),
    st.booleans(),
)
def test_tiles_are_of_one_row_each_and_cover_all(
    lengths: list[int], blank: int, height: int, twice: bool
) -> None:
    size = sum(lengths) + blank
    spans = pack(torch.tensor(lengths), size)[0]
    spans = spans.again() if twice else spans
    starts = spans.starts.tolist()
    runs = (2 if twice else 1) * (len(lengths) + 1)
    count = len(starts) // height + runs
    begins = spans.tiles(height, count).tolist()
    assert begins == sorted(begins)
    assert len(begins) == count
    covered = []
    for begin in begins:
        tile = range(begin, min(begin + height, len(starts)))
        covered += [at for at in tile if starts[at] == starts[begin]]
    assert sorted(set(covered)) == list(range(len(starts)))
    spoken = [at for at in covered if spans.ends[at] > 0]
    assert spoken == sorted(set(spoken))
