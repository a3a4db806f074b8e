"""The kernels of the flow compute what the plain U-Net computes: on a GPU, or interpreted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton", reason="pip install triton (torch for CUDA brings it along)")

from cosyserve.choices import KernelChoice
from cosyserve.models import kernels
from cosyserve.models.config import UNetConfig
from cosyserve.models.flow.fused.unet import FusedUNet
from cosyserve.models.flow.kernels import linear
from cosyserve.models.flow.kernels.norm_linear import fold_norm, layer_norm_linear
from cosyserve.models.flow.masks import attention_bias, valid
from cosyserve.models.flow.packing import Sight
from cosyserve.models.flow.unet import UNet, stack_inputs
from cosyserve.models.fused import fused_estimator
from tests.models.flow.packed import packed, tiled, unpacked

pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MEL, FRAMES = 20, 70
TIMES = [0.0, 0.1, 0.5]


def kernels_of(unet: UNet, times: Sequence[float]) -> FusedUNet:
    made = FusedUNet(unet, times)
    if DEVICE == "cpu":  # the interpreter can't multiply bfloat16
        made.ieee = True
    return made


@pytest.fixture(autouse=True)
def _exact_reference() -> Iterator[None]:
    with torch.backends.cudnn.flags(allow_tf32=False):
        yield


@pytest.mark.parametrize("known", [0, 1, 2, 3])  # a lone call, small, large, huge
@pytest.mark.parametrize(
    ("dtype", "tolerance", "chunk", "choice"),
    [
        (torch.float32, 1e-4, 20, "auto"),
        (torch.float32, 1e-4, 20, "small"),
        (torch.bfloat16, 2e-2, 1 << 20, "auto"),
    ],
)
@torch.inference_mode()
def test_an_estimate_is_that_of_the_plain_module(
    dtype: torch.dtype,
    tolerance: float,
    chunk: int,
    choice: KernelChoice,
    known: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernels, "_chosen", choice)
    for number, name in enumerate(("LONE_ROWS", "LARGE_ROWS", "HUGE_ROWS")):
        monkeypatch.setattr(linear, name, 0 if number < known else 1 << 20)
    torch.manual_seed(0)
    unet = UNet(UNetConfig("unet", 32, 2, 16, 1, 1), MEL).eval().to(DEVICE, dtype)
    x, mu, prompt = (torch.randn(2, MEL, FRAMES).to(DEVICE, dtype) for _ in range(3))
    speaker = torch.randn(2, MEL).to(DEVICE, dtype)
    sizes = (FRAMES, 33)
    lengths = torch.tensor(sizes, device=DEVICE)
    mask = attention_bias(valid(lengths, FRAMES), FRAMES, chunk if chunk < FRAMES else 0, x)
    time = torch.full((2,), TIMES[1], device=DEVICE)
    expected = unet(x, mu, speaker, prompt, time, mask)
    step, grid = torch.tensor([1], device=DEVICE), torch.tensor([chunk], device=DEVICE)
    inputs = stack_inputs(x, mu, speaker, prompt).transpose(1, 2)
    rows = [row[:size] for row, size in zip(inputs, sizes, strict=True)]
    together, spans = packed(rows)
    actual = kernels_of(unet, TIMES)(together, step, tiled(Sight(spans, grid)))
    for ours, reference, size in zip(unpacked(actual, rows), expected, sizes, strict=True):
        error = (ours.T - reference[:, :size]).float().norm()
        assert error <= tolerance * reference[:, :size].float().norm()


@torch.inference_mode()
def test_the_quick_gelu_is_near_the_true_one() -> None:
    x, ones = torch.randn(3, 16, device=DEVICE), torch.ones(16, device=DEVICE)
    bias = torch.linspace(-12, 12, 1000, device=DEVICE)
    layer = fold_norm((ones, 0 * ones, 1e-5), torch.zeros(1000, 16, device=DEVICE), bias)
    actual = layer_norm_linear(x, layer, act="gelu", ieee=False)
    torch.testing.assert_close(actual, F.gelu(bias).expand(3, -1), atol=1e-4, rtol=1e-5)


def test_a_cpu_is_left_alone() -> None:
    unet = UNet(UNetConfig("unet", 32, 2, 16, 1, 1), MEL).bfloat16()
    assert fused_estimator(unet, TIMES, FRAMES) is None
