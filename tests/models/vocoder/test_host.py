"""In channels last the vocoder computes what the plain module computes."""

from __future__ import annotations

import pytest
import torch

from cosyserve.models.vocoder import stream
from cosyserve.models.vocoder.hift import HiFT
from cosyserve.models.vocoder.host import HostHiFT, host_hift
from cosyserve.models.vocoder.layers import Snake
from tests.models.vocoder.small import CONFIG, small_hift


@pytest.fixture(scope="module", params=["sees both sides", "causal"])
def vocoder(request: pytest.FixtureRequest) -> HiFT:
    vocoder = small_hift(causal=request.param == "causal")
    snakes = [part for part in vocoder.modules() if isinstance(part, Snake)]
    for snake in snakes:
        snake.alpha[::3] *= -1
    snakes[0].alpha[0] = snakes[-1].alpha[1] = 0.0
    return vocoder


@pytest.mark.parametrize("lengths", [None, (24, 17, 3)], ids=["full", "ragged"])
def test_samples_are_those_of_the_plain_module(
    vocoder: HiFT, lengths: tuple[int, ...] | None
) -> None:
    mel = torch.randn(3, CONFIG.mel, 24)
    source = torch.randn(3, 24 * vocoder.frame)
    ends = None if lengths is None else torch.tensor(lengths)
    with torch.inference_mode():
        given = mel.clone()
        actual = HostHiFT(vocoder)(given, source, ends)
        expected = vocoder(mel, source, ends)
    for row, length in enumerate(lengths or (24, 24, 24)):
        samples = slice(length * vocoder.frame)
        torch.testing.assert_close(
            actual[row, samples], expected[row, samples], atol=2e-5, rtol=1e-4
        )
    assert torch.equal(given, mel)


def test_streams_are_those_of_the_plain_module(vocoder: HiFT) -> None:
    host = host_hift(vocoder)
    begun = [stream.begin(vocoder, seed) for seed in (3, 4)]
    mels = [torch.randn(CONFIG.mel, frames) for frames in (40, 55)]
    plain, quick = begun, begun
    with torch.inference_mode():
        for final in (False, True):
            expected = stream.advance(vocoder, plain, mels, [final, final])
            actual = stream.advance(vocoder, quick, mels, [final, final], host)
            for (samples, _), (others, _) in zip(actual, expected, strict=True):
                torch.testing.assert_close(samples, others, atol=2e-4, rtol=1e-3)
            plain, quick = ([state for _, state in done] for done in (expected, actual))


def test_other_devices_and_precisions_have_their_own(vocoder: HiFT) -> None:
    assert host_hift(vocoder) is not None
    assert host_hift(HiFT(CONFIG).to("meta")) is None
    assert host_hift(HiFT(CONFIG).half()) is None
