"""Streamed speech is whole speech, to 30 dB and without a seam."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyserve.models.config import VocoderConfig
from cosyserve.models.vocoder.hift import MARGINS, HiFT
from cosyserve.models.vocoder.stream import advance, begin
from tests.golden.fill import fill
from tests.golden.weights import filled_vocoder

CONFIG = VocoderConfig(base=32, f0_channels=32)


@pytest.fixture(scope="module")
def vocoder() -> HiFT:
    return filled_vocoder(CONFIG, 0, fill).requires_grad_(False)


@pytest.fixture(scope="module")
def causal() -> HiFT:
    return filled_vocoder(replace(CONFIG, causal=True), 0, fill).requires_grad_(False)


def frames(count: int, seed: int = 0) -> torch.Tensor:
    """Mel frames that change as slowly as speech does."""
    mel = torch.randn(1, 80, count, generator=torch.Generator().manual_seed(seed)) * 4
    return torch.nn.functional.avg_pool1d(mel, 5, 1, 2)[0] - 4


def streamed(vocoder: HiFT, mel: torch.Tensor, cuts: list[int], seed: int = 3) -> torch.Tensor:
    state, samples = begin(vocoder, seed), []
    for start, end in zip([0, *cuts], [*cuts, mel.shape[1]], strict=True):
        last = end == mel.shape[1]
        ((part, state),) = advance(vocoder, [state], [mel[:, start:end]], [last])
        samples.append(part)
        margins = vocoder.margins
        assert state.mel.shape[1] <= margins.left + margins.held + (end - start)
    return torch.cat(samples)


@pytest.fixture(scope="module")
def whole(vocoder: HiFT) -> torch.Tensor:
    return streamed(vocoder, frames(160), [])


@pytest.fixture(scope="module")
def causal_whole(causal: HiFT) -> torch.Tensor:
    return streamed(causal, frames(110), [])


def decibels(signal: torch.Tensor, error: torch.Tensor) -> float:
    return float(10 * torch.log10(signal.square().mean() / error.square().mean()))


@pytest.mark.slow
@settings(max_examples=12)
@given(st.sets(st.integers(10, 150), max_size=4))
def test_streamed_equals_whole(vocoder: HiFT, whole: torch.Tensor, cuts: set[int]) -> None:
    mel = frames(160)
    parts = streamed(vocoder, mel, sorted(cuts))
    assert len(parts) == len(whole) == 480 * 160
    assert decibels(whole, parts - whole + 1e-9) >= 30
    assert parts.diff().abs().max() <= 1.01 * whole.diff().abs().max()


def test_the_hops_of_a_stream_leave_no_seam(vocoder: HiFT) -> None:
    mel = frames(400)
    whole = streamed(vocoder, mel, [])
    error = streamed(vocoder, mel, [26, 76, 176]) - whole
    assert decibels(whole, error) >= 45
    for cut in (26, 76, 176):  # only around a seam may anything differ
        seam = 480 * (cut - MARGINS.held)
        error[seam - 480 * 8 : seam + 480 * MARGINS.fade] = 0
    assert error.abs().max() < 1e-3


@settings(max_examples=8)
@given(st.sets(st.integers(1, 100), max_size=4))
def test_a_causal_vocoder_streams_exactly(
    causal: HiFT, causal_whole: torch.Tensor, cuts: set[int]
) -> None:
    mel, whole = frames(110), causal_whole
    parts = streamed(causal, mel, sorted(cuts))
    assert len(parts) == len(whole) == 480 * 110
    torch.testing.assert_close(parts, whole, atol=2e-5, rtol=0)


def test_a_causal_vocoder_needs_its_margins(causal: HiFT) -> None:
    """With much narrower ones the speech is another."""
    mel = frames(80)
    whole = streamed(causal, mel, [])
    margins = causal.margins
    for narrower in (margins._replace(left=margins.left // 2), margins._replace(held=3)):
        with patch.object(causal, "margins", narrower):
            assert (streamed(causal, mel, [40]) - whole).abs().max() > 1e-4


def test_rows_of_a_causal_vocoder_don_t_depend_on_their_batch(causal: HiFT) -> None:
    mels, ends = [frames(40), frames(23, 1)], [False, True]
    together = advance(causal, [begin(causal, n) for n in range(2)], mels, ends)
    for number, (samples, _) in enumerate(together):
        state = begin(causal, number)
        ((alone, _),) = advance(causal, [state], [mels[number]], [ends[number]])
        torch.testing.assert_close(samples, alone, atol=2e-5, rtol=0)


def test_the_first_chunk_emits_all_but_the_held_frames(vocoder: HiFT) -> None:
    ((samples, state),) = advance(vocoder, [begin(vocoder, 0)], [frames(26)], [False])
    assert len(samples) == 480 * 18
    assert len(state.held) == 480 * MARGINS.fade


def test_tiny_chunks_are_kept_until_they_can_be_spoken(vocoder: HiFT) -> None:
    mel = frames(30)
    whole = streamed(vocoder, mel, [])
    parts = streamed(vocoder, mel, [1, 2, 5, 9, 11])
    assert len(parts) == len(whole)
    assert decibels(whole, parts - whole) >= 30


def test_noise_and_phase_belong_to_the_seed(vocoder: HiFT) -> None:
    mel = frames(40)
    assert torch.equal(streamed(vocoder, mel, [], seed=1), streamed(vocoder, mel, [], seed=1))
    assert not torch.equal(streamed(vocoder, mel, [], seed=1), streamed(vocoder, mel, [], seed=2))


def test_a_row_does_not_depend_on_its_batch(vocoder: HiFT) -> None:
    mels = [frames(40, 1), frames(73, 2), frames(9, 3)]
    states = [begin(vocoder, seed) for seed in range(3)]
    # One of them is in the middle of its speech.
    ((_, states[2]),) = advance(vocoder, [begin(vocoder, 2)], [frames(40, 4)], [False])
    final = [True, False, True]
    together = advance(vocoder, states, mels, final)
    for state, mel, last, (samples, rest) in zip(states, mels, final, together, strict=True):
        ((alone, lone),) = advance(vocoder, [state], [mel], [last])
        # The fill rule's pitch net multiplies rounding by 700.
        torch.testing.assert_close(samples, alone, atol=5e-4, rtol=0)
        torch.testing.assert_close(rest.phase, lone.phase, equal_nan=True, atol=1e-3, rtol=0)


def test_the_source_continues_anywhere(vocoder: HiFT) -> None:
    """Excitation computed from the middle on is the excitation of the whole."""
    f0 = torch.tensor([[0.0, 100, 120, 130, 5, 0, 210, 220, 230, 200]])
    noise = torch.randn(1, 4800, 9, generator=torch.Generator().manual_seed(0))
    whole = vocoder.source(f0, noise)
    before = vocoder.cycles_per_frame(f0)[:, :6].sum(1)
    later = vocoder.source(f0[:, 6:], noise[:, 6 * 480 :], before)
    torch.testing.assert_close(later, whole[:, 6 * 480 :], atol=1e-5, rtol=0)


def test_it_can_be_trained() -> None:
    vocoder = HiFT(CONFIG)
    mel = frames(20)[None]
    noise = torch.randn(1, 9600, 9)
    f0 = vocoder.f0(mel)
    (vocoder(mel, vocoder.source(f0, noise)).square().mean() + f0.mean()).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in vocoder.parameters())
