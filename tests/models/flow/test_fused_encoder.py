"""The kernels of the flow's encoder compute what the plain module computes: on a GPU, or
interpreted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

pytest.importorskip("triton", reason="pip install triton (torch for CUDA brings it along)")

from cosyserve.engine.compute.device_queue import DeviceQueue
from cosyserve.engine.compute.flow_graphs import FlowGraphs
from cosyserve.models.config import EncoderConfig, FlowConfig, UNetConfig
from cosyserve.models.flow.encoder import UpsamplingConformer
from cosyserve.models.flow.flow import Flow, FlowPrompt, FlowState
from cosyserve.models.flow.fused_encoder import FusedEncoder
from cosyserve.models.flow.kernels import linear as flow_linear
from cosyserve.models.flow.kernels.norm_linear import fold_norm, layer_norm_linear
from cosyserve.models.flow.masks import valid
from cosyserve.models.fused import fused_encoder
from tests.models.hopper import compiled

pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SMALL = EncoderConfig(32, 2, 48, 1, 1, chunk=10)
LONGEST = 80


def made(config: EncoderConfig, dtype: torch.dtype = torch.float32) -> UpsamplingConformer:
    """Every weight is such that leaving it out is seen."""
    torch.manual_seed(0)
    encoder = UpsamplingConformer(config).eval().requires_grad_(False)
    for name, weight in encoder.named_parameters():
        if "norm" in name or "pos_bias" in name or name.endswith("out.1.bias"):
            nn.init.normal_(weight, "weight" in name, 0.3)
    return encoder.to(DEVICE, dtype)


def encode(
    encoder: UpsamplingConformer | FusedEncoder,
    rows: Sequence[Tensor],
    size: int,
    streaming: bool,
    last: bool = True,
) -> list[Tensor]:
    """The frames of rows of tokens, padded to size."""
    given = [len(row) for row in rows]
    become = [n if last else n - SMALL.lookahead for n in given]
    lengths, encoded = (torch.tensor(n, device=DEVICE) for n in (given, become))
    tokens = nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
    inside = None if min(become) == size else valid(encoded, size)
    actual = encoder(tokens, lengths, inside, size, streaming)
    assert actual.shape == (len(rows), 2 * size, tokens.shape[2])
    return [frames[: 2 * n] for frames, n in zip(actual, become, strict=True)]


def near(
    actual: Sequence[Tensor] | Tensor, expected: Sequence[Tensor] | Tensor, tolerance: float
) -> bool:
    return all(
        (a - b).float().norm() <= tolerance * b.float().norm()
        for a, b in zip(actual, expected, strict=True)
    )


@pytest.fixture(autouse=True)
def _exact_reference() -> Iterator[None]:
    with torch.backends.cudnn.flags(allow_tf32=False), torch.inference_mode():
        yield


@pytest.mark.parametrize(
    ("given", "size", "streaming", "last", "medium", "large"),
    [
        ((40, 17), 40, True, True, 1 << 20, 1 << 20),
        ((70,), 67, False, False, 0, 1 << 20),
        ((70, 33), 67, True, False, 0, 0),
        ((6, 36, 24), 40, False, True, 0, 0),
    ],
)
def test_frames_are_those_of_the_plain_module(
    given: tuple[int, ...],
    size: int,
    streaming: bool,
    last: bool,
    medium: int,
    large: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flow_linear, "MEDIUM_ROWS", medium)
    monkeypatch.setattr(flow_linear, "LARGE_ROWS", large)
    plain = made(SMALL)
    tokens = [torch.randn(n, SMALL.size, device=DEVICE) for n in given]
    actual = encode(FusedEncoder(plain, LONGEST), tokens, size, streaming, last)
    assert near(actual, encode(plain, tokens, size, streaming, last), 1e-4)


@pytest.mark.parametrize("streaming", [True, False])
def test_a_row_is_the_same_in_company(streaming: bool) -> None:
    kernels = FusedEncoder(made(SMALL), LONGEST)
    tokens = [torch.randn(n, SMALL.size, device=DEVICE) for n in (31, 12)]
    together = encode(kernels, tokens, 32, streaming)
    alone = [encode(kernels, [row], len(row), streaming)[0] for row in tokens]
    assert near(together, alone, 1e-5)


def test_they_fit_a_hopper_gpu_at_full_size(tmp_path: Path) -> None:
    actual = [line.split() for line in compiled("compile_encoder.py", tmp_path)]
    assert {name for name, *_ in actual} == {"_layer_norm_linear", "_attend", "_linear_add"}
    for name, _, stack, shared in actual:
        assert stack == "0", f"{name} spills"
        assert int(shared) <= 227 * 1024, f"{name} asks for too much"


def test_wide_rows_are_normed_and_multiplied_as_well() -> None:
    ieee = DEVICE == "cpu"  # on a GPU they are for half of the bytes
    dtype, tolerance = (torch.float32, 1e-5) if ieee else (torch.bfloat16, 2e-2)
    norm, linear = nn.LayerNorm(320, 1e-12), nn.Linear(320, 70)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    norm, linear = norm.to(DEVICE, dtype), linear.to(DEVICE, dtype)
    x = torch.randn(5, 320).to(DEVICE, dtype)
    layer = fold_norm((norm.weight, norm.bias, norm.eps), linear.weight, linear.bias)
    actual = layer_norm_linear(x, layer, act="silu", ieee=ieee)
    assert near(actual, F.silu(linear(norm(x))), tolerance)


def test_chunks_come_out_of_the_kernels() -> None:
    unet = UNetConfig("unet", 32, 2, 16, 1, 1)
    flow = Flow(FlowConfig(SMALL, unet, speech_tokens=30, steps=1)).eval().requires_grad_(False)
    flow.to(DEVICE)
    prompt = FlowPrompt(
        torch.randint(0, 30, (5,), device=DEVICE),
        torch.randn(10, 80, device=DEVICE),
        torch.randn(192, device=DEVICE),
    )
    steps = FlowGraphs(flow, DeviceQueue(torch.device(DEVICE), static=True), (2,), 64)
    flow.encoder.load_state_dict(made(SMALL).state_dict())
    steps._encoder = FusedEncoder(flow.encoder, LONGEST)
    tokens = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9]
    with steps.queue.use():
        ((ours, _),) = steps.advance([FlowState(prompt)], [tokens], [False])
        ours = ours.clone()
    steps.queue.wait()
    ((expected, _),) = flow.advance(
        [FlowState(prompt)], [torch.tensor(tokens, device=DEVICE)], [False]
    )
    torch.testing.assert_close(ours, expected, atol=1e-4, rtol=0)


@pytest.mark.skipif(DEVICE == "cpu", reason="no CUDA device")
@pytest.mark.parametrize(
    ("given", "size"), [((101,), 104), ((256, 200, 31, 256, 99, 5, 250, 128), 256), ((350,), 352)]
)
@pytest.mark.parametrize("streaming", [True, False])
def test_full_size_in_bfloat16(given: tuple[int, ...], size: int, streaming: bool) -> None:
    plain = made(EncoderConfig(), torch.bfloat16)
    kernels = fused_encoder(plain, size)
    if kernels is None:
        pytest.skip("kernels are for other GPUs")
    tokens = [torch.randn(n, 512, device=DEVICE, dtype=torch.bfloat16) for n in given]
    actual = encode(kernels, tokens, size, streaming)
    expected = encode(plain.float(), [row.float() for row in tokens], size, streaming)
    assert near(actual, expected, 2e-2)


@pytest.mark.skipif(DEVICE == "cuda", reason="kernels are for a GPU, and there is one")
def test_a_cpu_is_left_alone() -> None:
    assert fused_encoder(made(SMALL), LONGEST) is None
