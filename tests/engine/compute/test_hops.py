from __future__ import annotations

from itertools import islice, pairwise

from hypothesis import given
from hypothesis import strategies as st

from cosyserve.engine.compute.hops import EQUAL, hop_ends


def test_the_published_prompt_of_87_tokens() -> None:
    assert list(islice(hop_ends(87, 25), 5)) == [13, 38, 88, 188, 388]


def test_without_a_prompt() -> None:
    assert list(islice(hop_ends(0, 25), 3)) == [25, 50, 100]


@given(st.integers(0, 750), st.sampled_from([1, 25]))
def test_every_end_lies_on_the_grid_and_hops_double(prompt: int, grid: int) -> None:
    ends = list(islice(hop_ends(prompt, grid), 7))
    assert all((prompt + end) % grid == 0 for end in ends)
    assert 8 <= ends[0] < 8 + grid
    assert [b - a for a, b in pairwise(ends)] == [25 << i for i in range(6)]


@given(st.integers(0, 750), st.sampled_from([25, 50]))
def test_equal_hops_lie_on_the_grid_too(prompt: int, hop: int) -> None:
    ends = list(islice(hop_ends(prompt, 25, hop, EQUAL), 5))
    assert all((prompt + end) % 25 == 0 for end in ends)
    assert [b - a for a, b in pairwise(ends)] == [hop] * 4
