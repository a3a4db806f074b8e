"""Streams in one pack come out of the kernels as they come out of the plain flow: on a GPU, or
interpreted."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="pip install triton (torch for CUDA brings it along)")

from cosyserve.engine.compute.graphs import packed_flow
from cosyserve.engine.compute.graphs.device_queue import DeviceQueue
from cosyserve.engine.compute.graphs.packed_flow import PackedFlow
from cosyserve.models.config import FlowConfig
from cosyserve.models.flow.flow import Flow
from cosyserve.models.flow.stream import FlowState
from cosyserve.models.kernels import Budget
from tests.engine.compute.graphs.packs import (
    DEVICE,
    DIT,
    ROTARY,
    UNET,
    packed_flow_of,
    plain_flow_of,
    prompt_of,
)
from tests.models.flow.packed import finished, make_large

pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")
TOLERANCE = 1e-4 if DEVICE.type == "cpu" else 2e-2


def near(ours: Tensor, theirs: Tensor) -> bool:
    return bool((ours - theirs).norm() <= TOLERANCE * theirs.norm())


@pytest.mark.parametrize(
    ("config", "large"),
    [(UNET, False), (UNET, True), (ROTARY, False), (DIT, False)],
    ids=["unet", "large-unet", "rotary", "dit"],
)
@torch.inference_mode()
def test_packs_are_what_the_plain_flow_computes(
    config: FlowConfig, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        make_large(monkeypatch)
    monkeypatch.setattr(packed_flow, "SIZES", (16, 24))
    flow = plain_flow_of(config)
    states = [FlowState(prompt_of(count)) for count in (3, 0, 4)]
    pack = packed_flow_of(flow)
    assert pack.max_batch([14, 10, 1]) == 2
    assert pack.max_batch([1] * 9) == 4
    tokens = [torch.randint(0, 30, (count,)).tolist() for count in (8, 6, 7)]
    final = [False, True, False]
    ids = [torch.tensor(row, device=DEVICE) for row in tokens]
    with pack.queue.use():
        streamed = finished(pack.advance(states, tokens, final))
        mels = [mel.clone() for mel, _ in streamed]
        whole = [mel.clone() for mel in finished(pack.whole([states[0].prompt], [tokens[0]]))]
        # What comes first must leave no trace in what comes later.
        again = [mel.clone() for mel, _ in finished(pack.advance(states, tokens, final))]
    pack.queue.wait()
    for ours, (expected, state), (_, after) in zip(
        mels, flow.advance(states, ids, final), streamed, strict=True
    ):
        assert near(ours, expected)
        assert after.tokens == state.tokens
    assert near(whole[0], flow.whole([states[0].prompt], ids[:1])[0])
    for first, second in zip(mels, again, strict=True):
        assert torch.equal(first, second)


@pytest.mark.parametrize("large", [False, True])
@torch.inference_mode()
def test_chunks_of_a_flow_that_remembers_are_those_of_its_caches(
    large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        make_large(monkeypatch)
    monkeypatch.setattr(packed_flow, "SIZES", (24, 40))
    flow = plain_flow_of(DIT)
    remembered = anew = [FlowState(prompt_of(count)) for count in (5, 0)]
    pack = packed_flow_of(flow)
    tokens = torch.randint(0, 30, (2, 17)).tolist()
    for end, final in ((3, False), (9, False), (17, True)):
        known = [row[: end + (0 if final else 3)] for row in tokens]
        ids = [torch.tensor(row, device=DEVICE) for row in known]
        expected = flow.advance(remembered, ids, [final] * 2)
        with pack.queue.use():
            found = finished(pack.advance(anew, known, [final] * 2))
        pack.queue.wait()
        for (ours, _), (theirs, _) in zip(found, expected, strict=True):
            assert near(ours, theirs)
        anew, remembered = ([state for _, state in states] for states in (found, expected))
        assert all(state.cache is None for state in anew)


def test_a_flow_without_kernels_is_not_packed() -> None:
    flow = Flow(UNET).eval().requires_grad_(False).to(DEVICE)
    assert PackedFlow.of(flow, DeviceQueue(DEVICE, static=True), 4) is None


@pytest.mark.parametrize(
    ("config", "pack_size"),
    [(UNET, "lone"), (UNET, "small"), (UNET, "large"), (ROTARY, "lone")],
)
@torch.inference_mode()
def test_a_prompt_that_was_heard_before_is_not_computed_again(
    config: FlowConfig, pack_size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cosyserve.models.flow.kernels import linear
    from cosyserve.models.flow.kernels.attention import prefix as prefix_attention

    monkeypatch.setattr(prefix_attention, "HELD", 16)  # less than what is known
    monkeypatch.setitem(prefix_attention.LONE, Budget.HOPPER, linear.Tile(16, 16, 4, 1))
    if pack_size == "small":
        monkeypatch.setattr(linear, "LONE_ROWS", 0)
    if pack_size == "large":
        make_large(monkeypatch)
    monkeypatch.setattr(packed_flow, "SIZES", (16, 32))
    flow = plain_flow_of(replace(config, encoder=replace(config.encoder, chunk=5)))
    prompts = [replace(prompt_of(count), key=key) for count, key in ((14, "a"), (8, "b"), (2, "c"))]
    pack = packed_flow_of(flow, slots=2)
    assert pack.prefixes
    states = [FlowState(prompt) for prompt in prompts]
    # 32 in all, so that the last frame that is there is the last that is seen.
    tokens = [torch.randint(0, 30, (count,)).tolist() for count in (3, 4, 4)]
    final = [True, False, True]
    ids = [torch.tensor(row, device=DEVICE) for row in tokens]
    expected = flow.advance(states, ids, final)
    for known in ([None, None, None], [10, 5, None]):
        assert [pack.prefixes.known(prompt) for prompt in prompts] == known
        with pack.queue.use():
            streamed = finished(pack.advance(states, tokens, final))
        pack.queue.wait()
        for (ours, _), (theirs, _) in zip(streamed, expected, strict=True):
            assert near(ours, theirs)
    with pack.queue.use():  # all of a text sees all of it, so that nothing of it is known
        whole = finished(pack.whole(prompts[:1], tokens[:1]))
    pack.queue.wait()
    assert near(whole[0], flow.whole(prompts[:1], ids[:1])[0])
