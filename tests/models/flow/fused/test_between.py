"""What lies between two attentions is what the blocks compute: by its weights, as it is put
together, and, on a Hopper GPU, in one launch."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pytest.importorskip("triton", reason="pip install triton (torch for CUDA brings it along)")
pytest.importorskip("triton.experimental.gluon.nvidia.hopper", reason="Triton without Gluon")

from cosyserve.models.config import UNetConfig
from cosyserve.models.flow.fused import unet as fused_unet
from cosyserve.models.flow.kernels.between import block as launched
from cosyserve.models.flow.kernels.between import weights
from cosyserve.models.flow.kernels.between.layouts import order
from cosyserve.models.flow.kernels.between.weights import Between, ordered
from cosyserve.models.flow.kernels.norm_linear import fold_norm
from cosyserve.models.flow.masks import attention_bias, valid
from cosyserve.models.flow.packing import Sight
from cosyserve.models.flow.unet import UNet, stack_inputs
from cosyserve.models.kernels import gluon
from tests.models.flow.fused.test_unet import DEVICE, MEL, TIMES, kernels_of
from tests.models.flow.packed import packed, unpacked

FRAMES = 40
COLUMNS, QKV_COLUMNS = order(256), order(1536)


def by_hand(
    attended: Tensor | None, x: Tensor, block: Between | None, following: Between | None
) -> Tensor | None:
    """As `between`, in float32."""

    def normalized() -> Tensor:
        return F.layer_norm(x[:, COLUMNS].float(), (256,), eps=1e-5)

    if block is not None:
        assert attended is not None
        out, widen, narrow = (part.base.float() for part in (block.out, block.widen, block.narrow))
        late, wide, last = block.biases.float().split((256, 1024, 256))
        whole = x[:, COLUMNS].float() + F.linear(attended.float(), out, late)
        hidden = F.linear(F.layer_norm(whole, (256,), eps=1e-5), widen, wide)
        x[:, COLUMNS] = (whole + F.linear(F.gelu(hidden), narrow, last)).to(x.dtype)
    if following is None:
        return None
    qkv = x.new_empty(len(x), 1536)
    qkv[:, QKV_COLUMNS] = F.linear(
        normalized(), following.qkv.base.float(), following.qkv_bias.float()
    ).to(x.dtype)
    return qkv


def test_columns_change_places_within_32() -> None:
    assert torch.equal(COLUMNS.sort().values, torch.arange(256))
    assert torch.equal(COLUMNS // 32, torch.arange(256) // 32)
    # Of a row, a thread has two columns in each of four parts: eight that lie side by side.
    assert torch.equal(COLUMNS[[2, 3, 10, 11, 18, 19, 26, 27]], torch.arange(8, 16))


@torch.inference_mode()
def test_a_chain_computes_what_the_plain_module_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_unet, "gluon", lambda _: True)
    monkeypatch.setattr(fused_unet, "CHAIN_ROWS", 0)
    monkeypatch.setattr(weights, "fits", lambda *_: True)
    monkeypatch.setattr(weights, "tiles", lambda x, *_: SimpleNamespace(base=x))  # of any type
    calls: list[tuple[bool, bool]] = []

    def between(attended: Tensor | None, x: Tensor, *blocks: Between | None) -> Tensor | None:
        calls.append((blocks[0] is None, blocks[1] is None))
        return by_hand(attended, x, *blocks)

    monkeypatch.setattr(launched, "between", between)
    torch.manual_seed(0)
    unet = UNet(UNetConfig("unet", blocks=2, mid=1), MEL).eval().to(DEVICE)
    for parameter in unet.parameters():  # so that no bias is next to nothing
        if parameter.ndim == 1:
            parameter.add_(0.3 * torch.randn_like(parameter))
    x, mu, prompt = (torch.randn(1, MEL, FRAMES, device=DEVICE) for _ in range(3))
    speaker = torch.randn(1, MEL, device=DEVICE)
    mask = attention_bias(valid(torch.tensor([FRAMES], device=DEVICE), FRAMES), FRAMES, 0, x)
    expected = unet(x, mu, speaker, prompt, torch.full((1,), TIMES[1], device=DEVICE), mask)
    rows = list(stack_inputs(x, mu, speaker, prompt).transpose(1, 2))
    together, spans = packed(rows)
    sight = Sight(spans, torch.tensor([1 << 20], device=DEVICE))
    actual = kernels_of(unet, TIMES)(together, torch.tensor([1], device=DEVICE), sight)
    assert calls == 3 * [(True, False), (False, False), (False, True)]
    (ours,) = unpacked(actual, rows)
    torch.testing.assert_close(ours.T, expected[0], atol=1e-3, rtol=1e-3)


@pytest.mark.skipif(not gluon(torch.device(DEVICE)), reason="it is no Hopper GPU")
@pytest.mark.parametrize("rows", [1, 200, 8192, 16383])
@torch.inference_mode()
def test_a_launch_computes_what_is_between(rows: int) -> None:
    torch.manual_seed(0)

    def some(*shape: int, scale: float = 1.0) -> Tensor:
        return (scale * torch.randn(shape)).to(DEVICE, torch.bfloat16)

    def layer(outputs: int, inputs: int) -> tuple[Tensor, Tensor]:
        return some(outputs, inputs, scale=inputs**-0.5), some(outputs, scale=0.3)

    norm = 1 + some(256, scale=0.1), some(256, scale=0.1), 1e-5
    qkv, widen = fold_norm(norm, *layer(1536, 256)), fold_norm(norm, *layer(1024, 256))
    block = ordered(qkv, layer(256, 512), widen, layer(256, 1024))
    attended, residual = some(rows, 512), 3 + some(rows, 256)
    for before, after in ((None, block), (block, block), (block, None)):
        ours, expected = residual.clone(), residual.float()
        found = launched.between(attended, ours, before, after)
        wanted = by_hand(attended, expected, before, after)
        for actual, reference in ((ours, expected), (found, wanted)):
            if reference is not None:
                assert actual is not None
                assert (actual - reference).norm() <= 5e-3 * reference.norm()
