from __future__ import annotations

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from cosyserve.engine.compute.stretch import stretch

speeds = st.floats(0.25, 4.0)


@given(st.integers(1, 80), speeds, st.sets(st.integers(1, 79), max_size=5))
@example(frames=23, speed=3.9, cuts={22})
def test_streamed_equals_whole(frames: int, speed: float, cuts: set[int]) -> None:
    mel = torch.randn(3, frames, generator=torch.Generator().manual_seed(frames))
    whole, _ = stretch(mel, None, speed, final=True)
    ends = [cut for cut in sorted(cuts) if cut < frames]
    state, parts = None, []
    for start, end in zip([0, *ends], [*ends, frames], strict=True):
        part, state = stretch(mel[:, start:end], state, speed, final=end == frames)
        parts.append(part)
    assert torch.equal(torch.cat(parts, dim=1), whole)
    assert whole.shape[1] == max(1, int(frames / speed))


def test_speed_one_is_the_identity() -> None:
    mel = torch.randn(3, 20)
    assert torch.equal(stretch(mel, None, 1.0, final=True)[0], mel)


@pytest.mark.parametrize("speed", [0.25, 0.5, 1.3, 2.0, 4.0])
def test_it_interpolates_like_a_resized_picture(speed: float) -> None:
    mel = torch.randn(2, 64)
    wanted = torch.nn.functional.interpolate(
        mel[None], scale_factor=1 / speed, mode="linear", recompute_scale_factor=False
    )[0]
    found = stretch(mel, None, speed, final=True)[0]
    torch.testing.assert_close(found, wanted[:, : found.shape[1]], atol=1e-4, rtol=0)


@given(speeds)
def test_the_state_stays_small(speed: float) -> None:
    state = None
    for _ in range(50):
        _, state = stretch(torch.zeros(2, 10), state, speed, final=False)
        assert state.kept.shape[1] <= 6
