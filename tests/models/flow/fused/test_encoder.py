"""The kernels of the flow's encoder compute what the plain module computes: on a GPU, or
interpreted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

pytest.importorskip("triton", reason="pip install triton (torch for CUDA brings it along)")

from cosyserve.choices import KernelChoice
from cosyserve.models import kernels
from cosyserve.models.config import EncoderConfig, LookaheadConfig
from cosyserve.models.flow.encoder import UpsamplingConformer
from cosyserve.models.flow.fused.encoder import FusedEncoder, FusedLookahead
from cosyserve.models.flow.kernels import linear as flow_linear
from cosyserve.models.flow.kernels.norm_linear import fold_norm, layer_norm_linear
from cosyserve.models.flow.lookahead import LookaheadEncoder
from cosyserve.models.flow.masks import valid
from cosyserve.models.flow.packing import PackedTokens
from cosyserve.models.fused import fused_encoder
from tests.models.flow.packed import BLANK, packed, unpacked

pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SMALL = EncoderConfig(32, 2, 48, 1, 1, chunk=10)
LONGEST, LOOKAHEAD = 80, 3


def made(config: EncoderConfig, dtype: torch.dtype = torch.float32) -> UpsamplingConformer:
    """Every weight is such that leaving it out is seen."""
    torch.manual_seed(0)
    encoder = UpsamplingConformer(config).eval().requires_grad_(False)
    for name, weight in encoder.named_parameters():
        if "norm" in name or "pos_bias" in name or name.endswith("out.1.bias"):
            nn.init.normal_(weight, "weight" in name, 0.3)
    return encoder.to(DEVICE, dtype)


def encode(
    encoder: UpsamplingConformer | LookaheadEncoder,
    rows: Sequence[Tensor],
    streaming: bool,
    last: bool = True,
) -> list[Tensor]:
    """The frames of rows of tokens, padded."""
    given = [len(row) for row in rows]
    become = [n if last else n - LOOKAHEAD for n in given]
    lengths, encoded = (torch.tensor(n, device=DEVICE) for n in (given, become))
    tokens = nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
    inside = valid(encoded, max(become))
    frames = encoder(tokens, lengths, inside, max(become), streaming)
    return [row[: 2 * n] for row, n in zip(frames, become, strict=True)]


def encode_packed(
    encoder: FusedEncoder | FusedLookahead,
    rows: Sequence[Tensor],
    streaming: bool,
    last: bool = True,
) -> list[Tensor]:
    """The same, one row behind another."""
    encoder.ieee = rows[0].dtype is torch.float32
    missing = LOOKAHEAD if last else 0
    become = [row[: len(row) + missing - LOOKAHEAD] for row in rows]
    looked_at = [F.pad(row, (0, 0, 0, missing), value=9.0) for row in rows]
    given = [torch.arange(len(row) + missing, device=DEVICE) < len(row) for row in rows]
    together, spans = packed(become)
    first, seen = 0, []
    for row in looked_at:
        seen += range(first, first + len(row) - LOOKAHEAD)
        first += len(row)
    own = torch.tensor(seen + [0] * BLANK, device=DEVICE)
    ahead = own[:, None] + torch.arange(LOOKAHEAD + 1, device=DEVICE)
    tokens = PackedTokens(torch.cat(looked_at), torch.cat(given), ahead, spans)
    frames = encoder(tokens, streaming)
    assert frames.shape == (2 * len(together), rows[0].shape[1])
    return unpacked(frames, become, 2)


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
    ("given", "streaming", "last", "small", "large"),
    [
        ((40, 17), True, True, 1 << 20, 1 << 20),
        ((70,), False, False, 0, 1 << 20),
        ((70, 33), True, False, 0, 0),
        ((6, 36, 24), False, True, 0, 0),
    ],
)
@pytest.mark.parametrize("choice", ["auto", "small"])
def test_frames_are_those_of_the_plain_module(
    given: tuple[int, ...],
    streaming: bool,
    last: bool,
    small: int,
    large: int,
    choice: KernelChoice,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernels, "_chosen", choice)
    monkeypatch.setattr(flow_linear, "LONE_ROWS", small)
    monkeypatch.setattr(flow_linear, "LARGE_ROWS", large)
    plain = made(SMALL)
    tokens = [torch.randn(n, SMALL.size, device=DEVICE) for n in given]
    actual = encode_packed(FusedEncoder(plain, LONGEST), tokens, streaming, last)
    assert near(actual, encode(plain, tokens, streaming, last), 1e-4)


@pytest.mark.parametrize("last", [True, False])
def test_frames_of_cosyvoice3_are_those_of_the_plain_module(last: bool) -> None:
    torch.manual_seed(0)
    config = LookaheadConfig(size=20, channels=24)
    plain = LookaheadEncoder(config).eval().requires_grad_(False).to(DEVICE)
    tokens = [torch.randn(n, config.size, device=DEVICE) for n in (6, 36, 24)]
    actual = encode_packed(FusedLookahead(plain), tokens, True, last)
    assert near(actual, encode(plain, tokens, True, last), 1e-4)


@pytest.mark.parametrize("streaming", [True, False])
def test_a_row_is_the_same_in_company(streaming: bool) -> None:
    encoder = FusedEncoder(made(SMALL), LONGEST)
    tokens = [torch.randn(n, SMALL.size, device=DEVICE) for n in (31, 12)]
    together = encode_packed(encoder, tokens, streaming)
    alone = [encode_packed(encoder, [row], streaming)[0] for row in tokens]
    assert near(together, alone, 1e-5)


@pytest.mark.parametrize("choice", ["auto", "small"])
def test_wide_rows_are_normed_and_multiplied_as_well(
    choice: KernelChoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "_chosen", choice)
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


@pytest.mark.skipif(DEVICE == "cpu", reason="no CUDA device")
@pytest.mark.parametrize("given", [(101,), (256, 200, 31, 256, 99, 5, 250, 128), (350,)])
@pytest.mark.parametrize("streaming", [True, False])
def test_full_size_in_bfloat16(given: tuple[int, ...], streaming: bool) -> None:
    plain = made(EncoderConfig(), torch.bfloat16)
    encoder = fused_encoder(plain, 352)
    if encoder is None:
        pytest.skip("kernels are for other GPUs")
    tokens = [torch.randn(n, 512, device=DEVICE, dtype=torch.bfloat16) for n in given]
    actual = encode_packed(encoder, tokens, streaming)
    expected = encode(plain.float(), [row.float() for row in tokens], streaming)
    assert near(actual, expected, 2e-2)


def test_a_cpu_is_left_alone() -> None:
    assert fused_encoder(made(SMALL, torch.bfloat16).cpu(), LONGEST) is None
