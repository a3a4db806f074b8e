"""Static shapes, as CUDA graphs need them, change nothing; nor does who shares them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyserve.contracts import Floats, Voice
from cosyserve.engine.compute.graphs import padded_flow, vocoder
from cosyserve.engine.compute.queued_audio import Token2WavState
from cosyserve.engine.compute.token2wav import Token2Wav
from cosyserve.engine.scheduling.lm_requests import segment_seed
from cosyserve.errors import CosyError
from cosyserve.models.config import DiTConfig, EncoderConfig, FlowConfig, UNetConfig, VocoderConfig
from cosyserve.models.flow.flow import Flow
from cosyserve.models.vocoder.hift import HiFT
from tests.golden.fill import fill
from tests.golden.weights import filled_flow, filled_vocoder

TOKENS = 50


UNET = UNetConfig("unet", 32, 2, 16, 1, 2)
DIT = DiTConfig("dit", 32, 2, 2, 16, 2.0, 64, history=30)


@pytest.fixture(scope="module")
def networks() -> tuple[Flow, HiFT]:
    return filled_networks(UNET)


@pytest.fixture(scope="module", params=[UNET, DIT], ids=["unet", "dit"])
def either(request: pytest.FixtureRequest) -> tuple[Flow, HiFT]:
    return filled_networks(request.param)


def filled_networks(estimator: UNetConfig | DiTConfig) -> tuple[Flow, HiFT]:
    config = FlowConfig(EncoderConfig(64, 4, 96, 2, 1), estimator, speech_tokens=TOKENS, steps=4)
    flow = filled_flow(config, 0, fill).requires_grad_(False)
    vocoder = filled_vocoder(VocoderConfig(base=32, f0_channels=32), 0, fill)
    return flow, vocoder.requires_grad_(False)


def voice(seed: int, prompt: int) -> Voice:
    random = np.random.default_rng(seed)
    return Voice(
        "",
        random.integers(0, TOKENS, prompt, dtype=np.int32),
        random.standard_normal((2 * prompt, 80), np.float32),
        random.standard_normal(192, np.float32),
    )


def tokens(seed: int, count: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, TOKENS, count).tolist()


def static(networks: tuple[Flow, HiFT]) -> Token2Wav:
    return Token2Wav(*networks, rows=(1, 2, 4), static=True)


def begun(token2wav: Token2Wav, speeds: Sequence[float] = (1.0, 1.0, 1.2)) -> list[Token2WavState]:
    return [
        token2wav.begin(voice(seed, 10 * seed), with_prompt=True, seed=seed, speed=speed)
        for seed, speed in enumerate(speeds)
    ]


def streamed(token2wav: Token2Wav, together: bool) -> list[Floats]:
    """Three streams in three chunks each; the last ones have lengths of their own."""
    states = begun(token2wav)
    said: list[list[Floats]] = [[], [], []]
    for chunk in range(3):
        final = chunk == 2
        counts = [57, 47, 38] if final else [28 + 25 * chunk - v.prompt_tokens for v in states]
        rows = [tokens(seed, 80)[: max(9, count)] for seed, count in enumerate(counts)]
        groups = [[0, 1, 2]] if together else [[0], [1], [2]]
        for group in groups:
            found = token2wav.start(
                [states[i] for i in group],
                [rows[i] for i in group],
                [final] * len(group),
                urgent=not chunk,
            ).get()
            for i, (samples, after) in zip(group, found, strict=True):
                said[i].append(samples)
                states[i] = after
    return [np.concatenate(pieces) for pieces in said]


def assert_same(ours: Floats, wanted: Floats) -> None:
    """To 1e-4; where the source's phase wraps, its rounding is heard a bit more."""
    assert len(ours) == len(wanted)
    error = np.abs(ours - wanted)
    assert np.sqrt(np.mean(error**2)) < 2e-5
    assert error.max() < 1e-3


def test_padded_streams_are_those_of_the_plain_modules(
    either: tuple[Flow, HiFT], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(padded_flow, "SIZES", (56, 80))
    monkeypatch.setattr(vocoder, "SIZES", (32, 104))
    shapes = static(either)
    assert shapes.warm_up() == 2 * 3 + 2 * 3
    assert shapes.warm_up() == 0
    plain = streamed(Token2Wav(*either), together=False)
    for found in (streamed(shapes, together=True), streamed(shapes, together=False)):
        for ours, wanted in zip(found, plain, strict=True):
            assert_same(ours, wanted)
    assert max(np.abs(wave).max() for wave in plain) > 0.01


def test_padded_whole_utterances_are_those_of_the_plain_modules(
    either: tuple[Flow, HiFT],
) -> None:
    rows = [tokens(seed, count) for seed, count in enumerate((12, 30, 21))]
    plain, padded = Token2Wav(*either), static(either)
    wanted = [plain.whole([v], [row])[0][0] for v, row in zip(begun(plain), rows, strict=True)]
    for (ours, _), alone in zip(padded.whole(begun(padded), rows), wanted, strict=True):
        assert_same(ours, alone)


@settings(max_examples=8, deadline=None)
@given(
    ends=st.sets(st.integers(1, 5), max_size=4),
    count=st.integers(127, 150),
    speed=st.sampled_from([1.0, 0.8]),
)
def test_speech_does_not_depend_on_where_its_chunks_end(
    networks: tuple[Flow, HiFT], ends: set[int], count: int, speed: float
) -> None:
    """As long as they end on the grid: a listener under load hears what one alone hears."""
    token2wav, said = Token2Wav(*networks), []
    for hops in (sorted(ends), [1, 3]):
        state = token2wav.begin(voice(1, 10), with_prompt=True, seed=1, speed=speed)
        heard = []
        for end in [*(25 * hop - 10 + 3 for hop in hops), count]:
            given_tokens = tokens(1, 150)[:end]
            ((samples, state),) = token2wav.advance([state], [given_tokens], [end == count])
            heard.append(samples)
        said.append(np.concatenate(heard))
    ours, other = said
    assert np.linalg.norm(ours - other) < 1e-2 * np.linalg.norm(other)  # -40 dB


def test_a_stream_that_outgrows_its_shapes_goes_on(
    either: tuple[Flow, HiFT], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(padded_flow, "SIZES", (40,))
    said = []
    for token2wav in (static(either), Token2Wav(*either)):
        state, heard = begun(token2wav)[1], []
        for end, final in ((18, False), (43, False), (60, True)):
            ((samples, state),) = token2wav.advance([state], [tokens(1, 60)[:end]], [final])
            heard.append(samples)
        said.append(np.concatenate(heard))
    assert_same(*said)


def test_what_is_kept_of_a_stream_does_not_grow_with_it(either: tuple[Flow, HiFT]) -> None:
    token2wav = static(either)
    state = begun(token2wav)[1]
    for end in (18, 43):
        ((_, state),) = token2wav.advance([state], [tokens(1, 60)[:end]], [False])
    assert state.flow.cache is None
    assert state.flow.ends == (15, 40)


def test_what_fits_no_shape_is_computed_all_the_same(
    networks: tuple[Flow, HiFT], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(padded_flow, "SIZES", (16,))
    monkeypatch.setattr(vocoder, "SIZES", (16,))
    small, plain = static(networks), Token2Wav(*networks)
    row = tokens(1, 20)
    ((ours, _),) = small.whole(begun(small)[1:2], [row])
    ((wanted, _),) = plain.whole(begun(plain)[1:2], [row])
    assert_same(ours, wanted)


def test_the_state_of_a_stream_outlives_the_buffers(either: tuple[Flow, HiFT]) -> None:
    """Others' chunks in between leave no trace."""
    token2wav = static(either)
    first, other, _ = begun(token2wav)
    ((_, after),) = token2wav.advance([first], [tokens(0, 28)], [False])
    ((wanted, _),) = token2wav.advance([after], [tokens(0, 40)], [True])
    token2wav.advance([other], [tokens(7, 18)], [False])
    ((again, _),) = token2wav.advance([after], [tokens(0, 40)], [True])
    np.testing.assert_array_equal(again, wanted)


def test_broken_numbers_are_told(networks: tuple[Flow, HiFT]) -> None:
    token2wav = static(networks)
    state = begun(token2wav)[0]
    broken = replace(state.flow.prompt, speaker=state.flow.prompt.speaker * torch.nan)
    state = replace(state, flow=replace(state.flow, prompt=broken))
    queued = token2wav.start([state], [tokens(0, 28)], [False], urgent=True)
    with pytest.raises(CosyError, match="NaN"):
        queued.get()


def test_a_voice_is_on_the_device_once_for_as_long_as_somebody_has_it(
    networks: tuple[Flow, HiFT],
) -> None:
    token2wav, speaker = Token2Wav(*networks), voice(1, 10)
    states = [
        token2wav.begin(speaker, with_prompt=with_prompt, seed=seed, speed=1.0)
        for seed, with_prompt in enumerate((True, True, False))
    ]
    first, second, preset = (state.flow.prompt for state in states)
    assert first is second
    assert (len(first.tokens), len(preset.tokens)) == (10, 0)
    assert [state.vocoder.seed for state in states] == [0, 1, 2]
    del speaker
    assert not token2wav._prompts


@pytest.mark.parametrize("shapes", [True, False], ids=["static", "any"])
def test_no_seed_is_too_large_or_changes_a_neighbour(
    networks: tuple[Flow, HiFT], shapes: bool
) -> None:
    token2wav = Token2Wav(*networks, rows=(1, 2, 4), static=shapes)
    largest = segment_seed((1 << 63) - 1, 1)  # of a text's second part
    odd, other = (
        token2wav.begin(voice(1, 10), with_prompt=True, seed=seed, speed=1.0)
        for seed in (largest, (1 << 60) + 12345)
    )
    said = tokens(0, 20)
    alone, _ = token2wav.advance([other], [said], [True])[0]
    (_, _), (company, _) = token2wav.advance([odd, other], [said, said], [True, True])
    np.testing.assert_allclose(company, alone, atol=1e-4)
