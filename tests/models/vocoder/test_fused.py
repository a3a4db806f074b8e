"""The kernels of the vocoder compute what the plain module computes: on a GPU, or interpreted."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="pip install triton (torch for CUDA brings it along)")

from cosyserve.engine.compute.graphs.device_queue import DeviceQueue
from cosyserve.engine.compute.graphs.vocoder import VocoderGraphs
from cosyserve.models.fused import fused_hift
from cosyserve.models.vocoder import stream
from cosyserve.models.vocoder.fused import FusedHiFT
from cosyserve.models.vocoder.hift import HiFT
from cosyserve.models.vocoder.kernels.convolution import Activation, Ends, Taps, convolve
from cosyserve.models.vocoder.layers import Snake
from tests.models.vocoder.small import CONFIG, small_hift

pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def exact_reference() -> Iterator[None]:
    with torch.backends.cudnn.flags(allow_tf32=False):
        yield


@pytest.fixture(scope="module", params=["sees both sides", "causal"])
def vocoder(request: pytest.FixtureRequest) -> HiFT:
    return small_hift(causal=request.param == "causal").to(DEVICE)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float16, 2e-2)])
@torch.inference_mode()
def test_speech_is_that_of_the_plain_module(
    vocoder: HiFT, dtype: torch.dtype, tolerance: float
) -> None:
    kernels = FusedHiFT(vocoder, dtype)
    sizes = (10, 4)
    mel = torch.randn(2, CONFIG.mel, max(sizes), device=DEVICE)
    source = 0.3 * torch.randn(2, max(sizes) * vocoder.frame, device=DEVICE)
    lengths = torch.tensor(sizes, device=DEVICE)
    torch.testing.assert_close(
        kernels.f0(mel, lengths), vocoder.f0(mel, lengths), atol=tolerance, rtol=0
    )
    actual, expected = kernels(mel, source, lengths), vocoder(mel, source, lengths)
    # What lies behind the end of a row does not matter, nor does who else is there.
    alone = kernels(mel[1:, :, :4], source[1:, : 4 * vocoder.frame])
    for ours, reference, size in zip(
        (actual[0], actual[1], alone[0]), (*expected, expected[1]), (*sizes, sizes[1]), strict=True
    ):
        end = size * vocoder.frame
        assert (ours[:end] - reference[:end]).norm() <= tolerance * reference[:end].norm()


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
@torch.inference_mode()
def test_what_is_no_number_is_heard_as_none(
    vocoder: HiFT, broken: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if DEVICE == "cpu":
        compare_as_a_gpu(monkeypatch)
    mel = torch.full((1, CONFIG.mel, 6), broken, device=DEVICE)
    speech = FusedHiFT(vocoder)(mel, torch.zeros(1, 6 * vocoder.frame, device=DEVICE))
    assert speech.isnan().all()


def compare_as_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lower of a number and of what is none is the number there, unless a kernel says more."""
    from triton._C.libtriton import ir
    from triton.runtime.interpreter import InterpreterBuilder

    def clamp(self: Any, x: Any, low: Any, high: Any, propagates: Any) -> Any:
        if propagates == ir.PROPAGATE_NAN.ALL:
            return self.ternary_op(x, low, high, np.clip)
        return self.ternary_op(x, low, high, lambda x, a, b: np.fmin(np.fmax(x, a), b))

    monkeypatch.setattr(InterpreterBuilder, "create_clampf", clamp)
    for name, lower in (("minnumf", np.fmin), ("maxnumf", np.fmax)):
        monkeypatch.setattr(
            InterpreterBuilder,
            f"create_{name}",
            lambda self, a, b, f=lower: self.binary_op(a, b, f),
        )


@torch.inference_mode()
def test_an_excitation_is_that_of_the_plain_module(vocoder: HiFT) -> None:
    f0 = torch.tensor([[0.0, 100, 120, 130, 5], [210, 220, 230, 0, 900]], device=DEVICE)
    seeds, firsts = torch.tensor([[7, 5 << 40], [0, 480]], device=DEVICE)
    before = torch.rand(2, CONFIG.harmonics + 1, dtype=torch.float64, device=DEVICE)
    before[0] = torch.nan  # speech begins
    actual = FusedHiFT(vocoder).source(f0, seeds, firsts, before)
    sample = firsts[:, None] + torch.arange(5 * vocoder.frame, device=DEVICE)
    noise = vocoder.noise(seeds[:, None], sample)
    torch.testing.assert_close(actual, vocoder.source(f0, noise, before), atol=1e-5, rtol=0)


@torch.inference_mode()
def test_streams_speak_through_the_kernels(vocoder: HiFT) -> None:
    states = [stream.begin(vocoder, seed) for seed in range(2)]
    mels = [torch.randn(CONFIG.mel, frames, device=DEVICE) for frames in (10, 9)]
    kernels = FusedHiFT(vocoder, torch.float32)
    steps = VocoderGraphs(vocoder, DeviceQueue(torch.device(DEVICE), static=True), (2,), 64)
    steps._fused = kernels
    with steps.queue.use():
        actual = steps.advance(states, mels, [False, True])
    steps.queue.wait()
    expected = stream.advance(vocoder, states, mels, [False, True])
    for (ours, _), (reference, _) in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours, reference, atol=1e-3, rtol=0)


@torch.inference_mode()
def test_an_activation_is_that_of_the_plain_module() -> None:
    snake = Snake(16).to(DEVICE)
    torch.nn.init.uniform_(snake.alpha, 0.01, 5.0)
    x = torch.randn(3, 1, 40, 16, device=DEVICE)  # of three convolutions
    x *= 10.0 ** torch.linspace(-4, 4, 40, device=DEVICE)[:, None]
    weight = torch.eye(16, device=DEVICE).expand(3, -1, -1).contiguous()
    plan = torch.tensor([(i, 1, 1, 0) for i in range(3)], dtype=torch.int32, device=DEVICE)
    taps = Taps(weight, plan, torch.zeros(1, 16, device=DEVICE))
    active = torch.empty(2, 1, 40, 16, device=DEVICE)
    ends = Ends(torch.tensor([39], device=DEVICE), 1)
    alpha = torch.stack((snake.alpha, snake.alpha))
    convolve(x, taps, ends, None, active, Activation("snake", alpha), ieee=True)
    expected = snake(x.sum(0).transpose(1, 2), torch.tensor([39], device=DEVICE)).transpose(1, 2)
    for copy in active:
        torch.testing.assert_close(copy, expected, atol=3e-5, rtol=3e-6)


@pytest.mark.skipif(DEVICE == "cpu", reason="no CUDA device")
@torch.inference_mode()
def test_captured_is_the_same_bit_by_bit(vocoder: HiFT) -> None:
    kernels = FusedHiFT(vocoder)
    mel = torch.randn(3, CONFIG.mel, 40, device=DEVICE)
    source = 0.3 * torch.randn(3, 40 * vocoder.frame, device=DEVICE)
    lengths = torch.tensor([40, 7, 1], device=DEVICE)
    plain, kept = kernels(mel, source, lengths), torch.empty_like(source)
    queue = DeviceQueue(torch.device(DEVICE))

    def speak() -> None:
        kept.copy_(kernels(mel, source, lengths))

    captured = queue.capture(speak)
    with queue.use():
        kept.zero_()
        captured()
    queue.wait()
    assert torch.equal(kept, plain)


def test_a_cpu_is_left_alone(vocoder: HiFT) -> None:
    assert fused_hift(deepcopy(vocoder).cpu()) is None
