"""Queues of a `Token2Wav` whose flow is packed: a prompt in its cache, whole texts in two of them.
On a GPU, or interpreted."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("triton", reason="pip install triton (torch for CUDA brings it along)")

from cosyserve import contracts
from cosyserve.checkpoints.model import Model
from cosyserve.contracts import Voice
from cosyserve.engine.compute import gpu_memory, queued_audio
from cosyserve.engine.compute import token2wav as token2wav_file
from cosyserve.engine.compute.graphs import packed_flow
from cosyserve.engine.compute.graphs.device_queue import DeviceQueue
from cosyserve.engine.compute.graphs.packed_flow import PackedFlow, PackedWork
from cosyserve.engine.compute.token2wav import Token2Wav
from cosyserve.models.flow.flow import Flow
from tests.engine.compute.graphs.packs import DEVICE, DTYPE, UNET, packed_flow_of, plain_flow_of

pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")
SHORT_CHUNKS = replace(UNET, encoder=replace(UNET.encoder, chunk=5))


def packed_token2wav(
    model: Model,
    monkeypatch: pytest.MonkeyPatch,
    tokens: int,
    *,
    slots: int = 0,
    whole_batches: int = 1,
) -> tuple[Token2Wav, list[PackedFlow]]:
    """With packs of so many tokens, one of each queue; `slots` for prefixes."""
    packs = []

    def of(flow: Flow, queue: DeviceQueue, *_: object, streams: bool = True) -> PackedFlow:
        packs.append(packed_flow_of(flow, slots, streams=streams))
        packs[-1].queue = queue
        return packs[-1]

    monkeypatch.setattr(packed_flow, "SIZES", (tokens,))
    monkeypatch.setattr(PackedFlow, "of", of)
    vocoder = deepcopy(model.need_token2wav()[1]).to(DEVICE, DTYPE)
    flow = plain_flow_of(SHORT_CHUNKS)
    return Token2Wav(flow, vocoder, whole_batches=whole_batches, static=True), packs


def random_voice(random: np.random.Generator, tokens: int) -> Voice:
    ids = random.integers(0, 30, tokens, dtype=np.int32)
    mel, embedding = random.standard_normal((2 * tokens, 80)), random.standard_normal(192)
    return Voice("", ids, mel.astype(np.float32), embedding.astype(np.float32))


def test_a_prompt_is_cached_before_anybody_asks_for_it(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    token2wav, packs = packed_token2wav(model, monkeypatch, 32, slots=1)
    prefixes, random = packs[0].prefixes, np.random.default_rng(0)
    assert prefixes
    voices = [random_voice(random, count) for count in (14, 8)]
    monkeypatch.setattr(contracts, "MAX_MEL", np.inf)
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
    monkeypatch.setattr(gpu_memory, "free_bytes", lambda _: token2wav_file.ROOMY)
    token2wav, packs = packed_token2wav(model, monkeypatch, 40, whole_batches=2)
    assert token2wav.whole_batches == 2
    for pack in packs:
        pack.warm_up()
    *_, all_kinds, whole_kinds = ({kind for kind, _ in pack._graphs._captured} for pack in packs)
    assert all_kinds - whole_kinds == {PackedWork.ENCODE_CHUNK}, "what nobody will stream"
    assert PackedWork.EULER_WHOLE in whole_kinds
    voice = random_voice(np.random.default_rng(0), 8)
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
    monkeypatch.setattr(gpu_memory, "free_bytes", lambda _: token2wav_file.ROOMY - 1)
    token2wav, _ = packed_token2wav(model, monkeypatch, 24, whole_batches=2)
    assert token2wav.whole_batches == 1
