"""A flow that keeps what it computed gives the frames of one that computes all of it anew."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyserve.engine.compute import incremental_flow as module
from cosyserve.engine.compute.incremental_flow import IncrementalFlow, incremental_flow
from cosyserve.models.config import FlowConfig
from cosyserve.models.flow.flow import Flow
from cosyserve.models.flow.stream import FlowPrompt, FlowState
from tests.golden.fill import fill
from tests.golden.weights import filled_flow
from tests.models.flow.test_flow import ROTARY, UNET, prompt, speech


@pytest.fixture(scope="module", params=["guided", "not guided"])
def flow(request: pytest.FixtureRequest) -> Flow:
    config = replace(UNET, guidance=0.7 if request.param == "guided" else 0.0)
    return filled_flow(config, 0, fill).requires_grad_(False)


def named(tokens: int, key: str) -> FlowPrompt:
    return replace(prompt(tokens), key=key)


@settings(max_examples=20, deadline=None)
@given(p=st.integers(0, 60), n=st.integers(1, 120), key=st.sampled_from(["", "v"]), data=st.data())
def test_frames_are_those_of_the_flow_that_keeps_nothing(
    flow: Flow, p: int, n: int, key: str, data: st.DataObject
) -> None:
    """Also of chunks that end anywhere: those are computed once more when they are whole."""
    quick, start, tokens = IncrementalFlow(flow), named(p, key), speech(n)
    ends = sorted(data.draw(st.sets(st.integers(1, n - 4), max_size=4))) if n > 4 else []
    for _ in range(2):  # the second time with what is known of the voice
        plain = mine = FlowState(start)
        for end in [*ends, None]:
            known = tokens if end is None else tokens[: end + flow.lookahead]
            ((mel, plain),) = flow.advance([plain], [known], [end is None])
            ((same, mine),) = quick.advance([mine], [known], [end is None])
            torch.testing.assert_close(same, mel, atol=1e-4, rtol=0)
            assert mine.tokens == plain.tokens


def test_a_chunk_with_nothing_new_is_empty(flow: Flow) -> None:
    quick, start, tokens = IncrementalFlow(flow), named(50, "v"), speech(28)
    plain = mine = FlowState(start)
    for final in (False, False, True, True):
        ((mel, plain),) = flow.advance([plain], [tokens], [final])
        ((same, mine),) = quick.advance([mine], [tokens], [final])
        torch.testing.assert_close(same, mel, atol=1e-4, rtol=0)


def count_frames(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of each Euler step, how many frames the estimator is given."""
    counts: list[int] = []
    forward = flow.estimator.forward

    def counted(x: torch.Tensor, *rest: object) -> torch.Tensor:
        counts.append(x.shape[2])
        return forward(x, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(flow.estimator, "forward", counted)
    return counts


def test_each_frame_is_computed_once(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    quick, tokens = IncrementalFlow(flow), speech(90)
    counts = count_frames(flow, monkeypatch)
    state = FlowState(named(51, "v"))
    for end in (24, 49):
        ((_, state),) = quick.advance([state], [tokens[: end + 3]], [False])
    quick.advance([state], [tokens], [True])
    # Of the prompt one chunk does not depend on what is said.
    assert counts[:: UNET.steps] == [50, 100, 50, 82]
    counts.clear()
    quick.advance([FlowState(named(51, "v"))], [tokens[:27]], [False])
    assert counts == [100] * UNET.steps


def test_only_the_newest_voices_are_kept(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_VOICES", 2)
    quick, counts = IncrementalFlow(flow), count_frames(flow, monkeypatch)
    for key in ("a", "b", "a", "c", "a", "b"):
        quick.advance([FlowState(named(28, key))], [speech(25)], [False])
    assert len(counts) == (6 + 4) * UNET.steps, "prompts of a, b, c, and of b once more"


@pytest.mark.parametrize(
    ("config", "kept"), [(UNET, True), (ROTARY, False), (replace(UNET, steps=1000), False)]
)
def test_only_what_needs_little_memory_is_kept(config: FlowConfig, kept: bool) -> None:
    assert (incremental_flow(Flow(config)) is not None) is kept
