"""The kernels of Step-Audio2's flow compute what its DiT computes: on a GPU, or interpreted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

pytest.importorskip("triton", reason="pip install triton (torch for CUDA brings it along)")

from cosyserve.models.config import DiTConfig
from cosyserve.models.flow.dit import DiT
from cosyserve.models.flow.fused.dit import FusedDiT
from cosyserve.models.flow.kernels import linear
from cosyserve.models.flow.masks import RowChunks, chunk_columns, chunks_bias
from cosyserve.models.flow.packing import Hidden, RowSpans, Sight
from cosyserve.models.flow.unet import stack_inputs
from tests.models.flow.packed import tiled

pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MEL, FRAMES, PROMPT, HISTORY = 20, 70, 12, 9
ENDS = (20, 41)  # of chunks before the last
TIMES = [0.0, 0.1, 0.5]
CONFIG = DiTConfig("dit", 48, 2, 3, 16, 2.0, 32)


@pytest.fixture(autouse=True)
def _exact_reference() -> Iterator[None]:
    with torch.backends.cudnn.flags(allow_tf32=False):
        yield


@pytest.mark.parametrize("known", [0, 2])  # a lone call, large
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 2e-2)])
@torch.inference_mode()
def test_an_estimate_is_that_of_the_plain_module(
    dtype: torch.dtype, tolerance: float, known: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, name in enumerate(("LONE_ROWS", "LARGE_ROWS", "HUGE_ROWS")):
        monkeypatch.setattr(linear, name, 0 if number < known else 1 << 20)
    torch.manual_seed(0)
    dit = DiT(CONFIG, MEL).eval().to(DEVICE, dtype)
    x, mu, prompt = (torch.randn(1, MEL, FRAMES).to(DEVICE, dtype) for _ in range(3))
    speaker = torch.randn(1, MEL).to(DEVICE, dtype)
    columns = torch.from_numpy(chunk_columns(PROMPT, ENDS, FRAMES)).to(DEVICE)
    bias = chunks_bias(RowChunks(*columns[:, None]), 1, HISTORY, x)
    expected = dit(x, mu, speaker, prompt, torch.full((1,), TIMES[1], device=DEVICE), bias)
    first, end, start = columns
    spans = RowSpans(torch.zeros_like(end).int(), end.int())
    chunk = torch.tensor([FRAMES], device=DEVICE)
    kernels = FusedDiT(dit, TIMES)
    if DEVICE == "cpu":  # the interpreter can't multiply bfloat16
        kernels.ieee = True
    rows = stack_inputs(x, mu, speaker, prompt)[0].T.contiguous()
    step = torch.tensor([1], device=DEVICE)
    hidden = Hidden.between(start, first - HISTORY)
    actual, all_seen = (
        kernels(rows, step, tiled(Sight(spans, chunk, part))).T for part in (hidden, None)
    )
    size = expected.float().norm()
    assert (actual - expected[0]).float().norm() <= tolerance * size
    assert (all_seen - expected[0]).float().norm() > 5e-3 * size  # so what is hidden matters
