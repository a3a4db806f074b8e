"""Windows of the vocoder share calls where that costs less."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from cosyserve.engine.compute.graphs.device_queue import DeviceQueue
from cosyserve.engine.compute.graphs.vocoder import VocoderGraphs
from cosyserve.models.config import VocoderConfig
from cosyserve.models.vocoder.hift import HiFT

ROWS, FRAMES = (1, 2, 4, 8), 4096
HIFT = HiFT(VocoderConfig(base=32, f0_channels=32))
GRAPHS = VocoderGraphs(HIFT, DeviceQueue(HIFT.conv_pre.weight.device, static=True), ROWS, FRAMES)


def lengths(frames: list[int]) -> list[list[int]]:
    return [[frames[number] for number in group] for group in GRAPHS.groups(frames)]


def test_full_shapes_are_filled() -> None:
    assert lengths([550] * 12) == [[550] * 4] * 3  # 8 of them are too many frames for one shape
    assert sorted(lengths([500] * 12)) == [[500] * 4, [500] * 8]
    assert sorted(lengths([100] * 9)) == [[100], [100] * 8]


def test_few_short_ones_share_a_call_and_long_ones_keep_to_their_like() -> None:
    assert lengths([30, 100, 60]) == [[100, 60, 30]]
    assert lengths([40, 1500, 45, 1600]) == [[1600, 1500], [45, 40]]


def test_what_no_shape_holds_is_alone() -> None:
    assert lengths([3000, 50, 2500]) == [[3000], [2500], [50]]


@given(st.lists(st.integers(1, 2500), min_size=1, max_size=7))
def test_no_other_way_costs_less(frames: list[int]) -> None:
    def cost(groups: list[list[int]]) -> float:
        return sum(GRAPHS._cost(len(group), max(group)) for group in groups)

    ordered = sorted(frames, reverse=True)
    ways = [
        [ordered[a:b] for a, b in itertools.pairwise((0, *cuts, len(ordered)))]
        for count in range(len(ordered))
        for cuts in itertools.combinations(range(1, len(ordered)), count)
    ]
    groups = GRAPHS.groups(frames)
    assert sorted(itertools.chain.from_iterable(groups)) == list(range(len(frames)))
    assert cost(lengths(frames)) <= min(map(cost, ways)) + 1e-9
