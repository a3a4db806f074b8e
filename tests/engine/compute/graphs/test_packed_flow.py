"""Streams in one pack come out of the kernels as they come out of the plain flow: on a GPU, or
interpreted."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="pip install triton (torch for CUDA brings it along)")

from cosyserve.checkpoints.model import Model
from cosyserve.contracts import Voice
from cosyserve.engine.compute import gpu_memory, queued_audio
from cosyserve.engine.compute import token2wav as token2wav_file
from cosyserve.engine.compute.graphs import packed_flow
from cosyserve.engine.compute.graphs.device_queue import DeviceQueue
from cosyserve.engine.compute.graphs.packed_flow import PackedFlow, PackedWork
from cosyserve.engine.compute.graphs.prefix_cache import MAX_FRAMES, PrefixCache
from cosyserve.engine.compute.token2wav import Token2Wav
from cosyserve.models.config import (
    DiTConfig,
    EncoderConfig,
    FlowConfig,
    LookaheadConfig,
    RotaryDiTConfig,
    UNetConfig,
)
from cosyserve.models.flow.cfm import schedule
from cosyserve.models.flow.dit import DiT
from cosyserve.models.flow.encoder import UpsamplingConformer
from cosyserve.models.flow.flow import Flow
from cosyserve.models.flow.fused.dit import FusedDiT
from cosyserve.models.flow.fused.encoder import FusedEncoder, FusedLookahead
from cosyserve.models.flow.fused.rotary_dit import FusedRotaryDiT
from cosyserve.models.flow.fused.unet import FusedUNet
from cosyserve.models.flow.lookahead import LookaheadEncoder
from cosyserve.models.flow.rotary_dit import RotaryDiT
from cosyserve.models.flow.stream import FlowPrompt, FlowState
from cosyserve.models.flow.unet import UNet
from cosyserve.models.kernels import Budget
from tests.models.flow.packed import finished, make_large

pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
# The interpreter can't multiply bfloat16, and a GPU has no room for tiles of float32.
DTYPE, TOLERANCE = (torch.float32, 1e-4) if DEVICE.type == "cpu" else (torch.bfloat16, 2e-2)
UNET = FlowConfig(
    EncoderConfig(32, 2, 48, 1, 1, chunk=10),
    UNetConfig("unet", 32, 2, 16, 1, 1),
    speech_tokens=30,
    steps=1,
)
DIT = FlowConfig(
    EncoderConfig(32, 2, 48, 1, 1),
    DiTConfig("dit", 32, 2, 2, 16, 2.0, 64, history=6),
    speech_tokens=30,
    steps=2,
)
ROTARY = FlowConfig(
    LookaheadConfig(channels=16, chunk=10),
    RotaryDiTConfig("rotary_dit", 48, 1, 3, 16),
    speech_tokens=30,
    steps=1,
)


def plain_flow_of(config: FlowConfig) -> Flow:
    torch.manual_seed(0)
    return Flow(config).eval().requires_grad_(False).to(DEVICE, DTYPE)


def packed_flow_of(flow: Flow, slots: int = 0, *, streams: bool = True) -> PackedFlow:
    """Also in float32, which `PackedFlow.of` leaves to the plain flow; `slots` for prefixes. Its
    queue waits for what there is when it is made: weights, and the prompts of a test."""
    times = [time for time, _ in schedule(flow.config.steps)]
    estimator: FusedUNet | FusedRotaryDiT | FusedDiT
    encoder: FusedEncoder | FusedLookahead
    if isinstance(flow.estimator, UNet):
        assert isinstance(flow.encoder, UpsamplingConformer)
        estimator, encoder = FusedUNet(flow.estimator, times), FusedEncoder(flow.encoder, 64)
    elif isinstance(flow.estimator, DiT):
        assert isinstance(flow.encoder, UpsamplingConformer)
        estimator, encoder = FusedDiT(flow.estimator, times), FusedEncoder(flow.encoder, 64)
    else:
        assert isinstance(flow.estimator, RotaryDiT)
        assert isinstance(flow.encoder, LookaheadEncoder)
        estimator = FusedRotaryDiT(flow.estimator, times, 128)
        encoder = FusedLookahead(flow.encoder)
    prefixes = PrefixCache(flow, estimator.pasts(MAX_FRAMES), slots) if slots else None
    queue = DeviceQueue(DEVICE, static=True)
    return PackedFlow(flow, queue, 4, encoder, estimator, prefixes, streams=streams)


def prompt_of(tokens: int) -> FlowPrompt:
    return FlowPrompt(
        torch.randint(0, 30, (tokens,), device=DEVICE),
        torch.randn(2 * tokens, 80, device=DEVICE, dtype=DTYPE),
        torch.randn(192, device=DEVICE, dtype=DTYPE),
    )


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


def test_a_prompt_is_cached_before_anybody_asks_for_it(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_flow, "SIZES", (32,))
    packs = []

    def of(flow: Flow, queue: DeviceQueue, *_: object, **__: object) -> PackedFlow:
        packs.append(packed_flow_of(flow, slots=1))
        packs[-1].queue = queue
        return packs[-1]

    monkeypatch.setattr(PackedFlow, "of", of)
    flow = plain_flow_of(replace(UNET, encoder=replace(UNET.encoder, chunk=5)))
    vocoder = deepcopy(model.need_token2wav()[1]).to(DEVICE, DTYPE)
    token2wav = Token2Wav(flow, vocoder, static=True)
    prefixes, random = packs[0].prefixes, np.random.default_rng(0)
    assert prefixes

    def voice_of(tokens: int) -> Voice:
        ids = random.integers(0, 30, tokens, dtype=np.int32)
        mel, embedding = random.standard_normal((2 * tokens, 80)), random.standard_normal(192)
        return Voice("", ids, mel.astype(np.float32), embedding.astype(np.float32))

    voices = [voice_of(count) for count in (14, 8)]
    nobody = replace(voices[0], mel=np.full_like(voices[0].mel, 3e38))
    token2wav.cache_prompts([nobody])  # which is told who asks for it
    token2wav.cache_prompts([voices[0], *voices])  # there is a slot for one

    def known(voice: Voice) -> int | None:
        begun = token2wav.begin(voice, with_prompt=True, seed=1, speed=1.0)
        return prefixes.known(begun.flow.prompt)

    assert [known(voice) for voice in (*voices, nobody)] == [10, None, None]


def test_whole_texts_are_the_same_in_whichever_queue(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_flow, "SIZES", (40,))
    monkeypatch.setattr(gpu_memory, "free_bytes", lambda _: token2wav_file.ROOMY)
    packs = []

    def of(flow: Flow, queue: DeviceQueue, *_: object, streams: bool = True) -> PackedFlow:
        packs.append(packed_flow_of(flow, streams=streams))
        packs[-1].queue = queue
        return packs[-1]

    monkeypatch.setattr(PackedFlow, "of", of)
    flow = plain_flow_of(replace(UNET, encoder=replace(UNET.encoder, chunk=5)))
    vocoder = deepcopy(model.need_token2wav()[1]).to(DEVICE, DTYPE)
    token2wav = Token2Wav(flow, vocoder, whole_batches=2, static=True)
    assert token2wav.whole_batches == 2
    for pack in packs:
        pack.warm_up()
    *_, all_kinds, whole_kinds = ({kind for kind, _ in pack._graphs._captured} for pack in packs)
    assert all_kinds - whole_kinds == {PackedWork.ENCODE_CHUNK}, "what nobody will stream"
    assert PackedWork.EULER_WHOLE in whole_kinds
    random = np.random.default_rng(0)
    ids = random.integers(0, 30, 8, dtype=np.int32)
    voice = Voice("", ids, np.zeros((16, 80), np.float32), np.zeros(192, np.float32))
    begun = token2wav.begin(voice, with_prompt=True, seed=0, speed=1.0)
    long, short = ([begun, begun], [[*range(9)], [*range(5)]]), ([begun], [[7]])
    expected = [samples for samples, _ in token2wav.whole(*long)]
    assert [len(samples) for samples in expected] == [9 * 960, 5 * 960]
    # One launch after another, and the host looks after the second batch alone.
    monkeypatch.setattr(queued_audio, "AHEAD", 1)
    first, second = (token2wav.start(*asked, None, urgent=False) for asked in (long, short))
    while not second.launched:
        second.poll()
    assert not first.launched
    third = token2wav.start(*long, None, urgent=False)
    for audio in (first, third):
        for (samples, _), same in zip(audio.get(), expected, strict=True):
            np.testing.assert_array_equal(samples, same)
    assert len(second.get()) == 1


def test_a_small_gpu_has_one_queue_for_whole_texts(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_flow, "SIZES", (24,))
    monkeypatch.setattr(gpu_memory, "free_bytes", lambda _: token2wav_file.ROOMY - 1)
    monkeypatch.setattr(PackedFlow, "of", lambda flow, *_, **__: packed_flow_of(flow))
    vocoder = deepcopy(model.need_token2wav()[1]).to(DEVICE, DTYPE)
    token2wav = Token2Wav(plain_flow_of(UNET), vocoder, whole_batches=2, static=True)
    assert token2wav.whole_batches == 1
