"""The kernels of CosyVoice3's flow compute what its DiT computes: on a GPU, or interpreted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import torch

pytest.importorskip("triton", reason="pip install triton (torch for CUDA brings it along)")

from cosyserve.models.config import RotaryDiTConfig
from cosyserve.models.flow.fused.rotary_dit import FusedRotaryDiT
from cosyserve.models.flow.kernels import linear
from cosyserve.models.flow.masks import attention_bias, valid
from cosyserve.models.flow.packing import Sight
from cosyserve.models.flow.rotary_dit import RotaryDiT
from cosyserve.models.flow.unet import stack_inputs
from cosyserve.models.fused import fused_estimator
from tests.models.flow.packed import packed, tiled, unpacked

pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MEL, FRAMES = 20, 70
TIMES = [0.0, 0.1, 0.5]
CONFIG = RotaryDiTConfig("rotary_dit", 48, 2, 3, 16)


def kernels_of(dit: RotaryDiT, times: Sequence[float]) -> FusedRotaryDiT:
    made = FusedRotaryDiT(dit, times, FRAMES)
    if DEVICE == "cpu":  # the interpreter can't multiply bfloat16
        made.ieee = True
    return made


@pytest.fixture(autouse=True)
def _exact_reference() -> Iterator[None]:
    with torch.backends.cudnn.flags(allow_tf32=False):
        yield


@pytest.mark.parametrize("known", [0, 1, 2])  # a lone call, small, large
@pytest.mark.parametrize(
    ("dtype", "tolerance", "chunk"), [(torch.float32, 1e-4, 20), (torch.bfloat16, 2e-2, 1 << 20)]
)
@torch.inference_mode()
def test_an_estimate_is_that_of_the_plain_module(
    dtype: torch.dtype,
    tolerance: float,
    chunk: int,
    known: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number, name in enumerate(("LONE_ROWS", "LARGE_ROWS", "HUGE_ROWS")):
        monkeypatch.setattr(linear, name, 0 if number < known else 1 << 20)
    torch.manual_seed(0)
    dit = RotaryDiT(CONFIG, MEL).eval().to(DEVICE, dtype)
    x, mu, prompt = (torch.randn(2, MEL, FRAMES).to(DEVICE, dtype) for _ in range(3))
    speaker = torch.randn(2, MEL).to(DEVICE, dtype)
    sizes = (FRAMES, 33)
    lengths = torch.tensor(sizes, device=DEVICE)
    mask = attention_bias(valid(lengths, FRAMES), FRAMES, chunk if chunk < FRAMES else 0, x)
    time = torch.full((2,), TIMES[1], device=DEVICE)
    expected = dit(x, mu, speaker, prompt, time, mask)
    step, grid = torch.tensor([1], device=DEVICE), torch.tensor([chunk], device=DEVICE)
    inputs = stack_inputs(x, mu, speaker, prompt).transpose(1, 2)
    rows = [row[:size] for row, size in zip(inputs, sizes, strict=True)]
    together, spans = packed(rows)
    actual = kernels_of(dit, TIMES)(together, step, tiled(Sight(spans, grid)))
    for ours, reference, size in zip(unpacked(actual, rows), expected, sizes, strict=True):
        error = (ours.T - reference[:, :size]).float().norm()
        assert error <= tolerance * reference[:, :size].float().norm()


def test_a_cpu_is_left_alone() -> None:
    assert fused_estimator(RotaryDiT(CONFIG, MEL).bfloat16(), TIMES, FRAMES) is None
