"""The kernels compute what the plain module computes: on a GPU, or interpreted on a CPU."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="pip install triton (torch for CUDA brings it along)")

from cosyserve.choices import KernelChoice
from cosyserve.contracts import Sampling
from cosyserve.engine.compute.generation import Generation, WholeText
from cosyserve.engine.compute.graphs.lm import TILE
from cosyserve.engine.compute.lm_runner import LMRunner
from cosyserve.models import int8
from cosyserve.models import kernels as kernel_choice
from cosyserve.models.config import LMConfig
from cosyserve.models.fused import fused_lm
from cosyserve.models.kernels.launch import launch, only_compiled
from cosyserve.models.lm import draw
from cosyserve.models.lm.fused import FusedLM
from cosyserve.models.lm.kernels import elementwise
from cosyserve.models.lm.kernels.linear_batch import GATED, PLAIN
from cosyserve.models.lm.kernels.prefill_attention import QUERIES
from cosyserve.models.lm.lm import KVCache, SpeechLM

pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

CONFIG = LMConfig(112, 160, 2, 7, 1, text_vocab=50, speech_tokens=60)


def made(dtype: torch.dtype, config: LMConfig = CONFIG) -> tuple[SpeechLM, FusedLM]:
    torch.manual_seed(0)
    lm = SpeechLM(config).eval().requires_grad_(False)
    for parameter in lm.parameters():
        if parameter.ndim == 1:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    lm = lm.to(DEVICE, dtype)
    kernels = FusedLM(lm, 256)
    if DEVICE == "cpu":  # the interpreter can't multiply bfloat16
        kernels.ieee = True
    return lm, kernels


@pytest.mark.parametrize(
    ("rows", "choice"), [(2, "auto"), (18, "auto"), (18, "small"), (65, "auto"), (65, "small")]
)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 2e-2)])
def test_a_step_is_that_of_the_plain_module(
    rows: int,
    choice: KernelChoice,
    dtype: torch.dtype,
    tolerance: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernel_choice, "_chosen", choice)
    lm, kernels = made(dtype)
    caches = [KVCache.empty(CONFIG, rows + 1, 256, device=DEVICE, dtype=dtype) for _ in range(2)]
    for part in ("keys", "values"):
        filled = torch.randn_like(getattr(caches[0], part))
        for cache in caches:
            getattr(cache, part).copy_(filled)
    lengths = torch.randint(0, 190, (rows,), device=DEVICE)
    lengths[:2] = torch.tensor([0, 64])
    ids = torch.randint(0, CONFIG.vocab, (rows,), device=DEVICE)
    actual = kernels.logits(ids, lengths, caches[0], 192)
    expected = lm.logits(lm.extend(ids[:, None], lengths, caches[1], 192)[:, 0])
    assert (actual - expected).norm() <= tolerance * expected.norm()
    for part in ("keys", "values"):
        written, reference = (getattr(cache, part).float() for cache in caches)
        torch.testing.assert_close(written, reference, atol=3 * tolerance, rtol=0)


def test_eight_bits_are_those_of_the_rounded_weights() -> None:
    lm, _ = made(torch.float32)
    rounded = int8.unpacked("lm", int8.packed(lm.state_dict()))
    lm.eight_bits = True
    kernels = FusedLM(lm, 64)
    kernels.ieee = True
    caches = [KVCache.empty(CONFIG, 2, 64, device=DEVICE) for _ in range(2)]
    ids, lengths = torch.tensor([[5, 7], [0, 0]], device=DEVICE)
    actual = kernels.logits(ids, lengths, caches[0], 64)
    for name, part in lm.named_parameters():
        if part.ndim > 1 and name != "embedding.weight":
            part.copy_(rounded[name])
    expected = lm.logits(lm.extend(ids[:, None], lengths, caches[1], 64)[:, 0])
    assert (
        actual - expected
    ).norm() <= 2e-3 * expected.norm()  # unpacked ones are in half precision


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("start", [0, 70])
def test_a_piece_of_a_prompt_is_that_of_the_plain_module(
    start: int, dtype: torch.dtype, tolerance: float
) -> None:
    lm, kernels = made(dtype)
    caches = [KVCache.empty(CONFIG, 3, 256, device=DEVICE, dtype=dtype) for _ in range(2)]
    for part in ("keys", "values"):
        filled = torch.randn_like(getattr(caches[0], part))
        for cache in caches:
            getattr(cache, part).copy_(filled)
    ids = torch.randint(0, CONFIG.vocab, (48,), device=DEVICE)
    tiles = torch.tensor([[2, 2], [start, start + 32]], device=DEVICE)
    actual = kernels.prompt(ids, *tiles, torch.tensor([40], device=DEVICE), caches[0], 128)
    hidden = lm.extend(ids[None], tiles[1, :1], caches[1], 128, tiles[0, :1])
    expected = lm.logits(hidden[0, 40:41])
    assert (actual - expected).norm() <= tolerance * expected.norm()
    for part in ("keys", "values"):
        written, reference = (getattr(cache, part).float() for cache in caches)
        torch.testing.assert_close(written, reference, atol=3 * tolerance, rtol=0)


@pytest.mark.parametrize(
    ("length", "choice"),
    [
        *((length, "auto") for length in (1, 16, 31, 32, 33, 64, 65, 110, 128, 129)),
        *((length, "small") for length in (64, 65)),
    ],
)
def test_a_prompt_of_any_length_is_that_of_the_plain_module(
    length: int, choice: KernelChoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_choice, "_chosen", choice)
    lm, kernels = made(torch.float32)
    caches = [KVCache.empty(CONFIG, 2, 192, device=DEVICE) for _ in range(2)]
    ids = torch.randint(0, CONFIG.vocab, (length,), device=DEVICE)
    starts = torch.arange(5, 5 + length, TILE, device=DEVICE)
    last = torch.tensor([length - 1, length // 2], device=DEVICE)
    actual = kernels.prompt(ids, torch.ones_like(starts), starts, last, caches[0], 192)
    hidden = lm.extend(ids[None], starts[:1], caches[1], 192, torch.ones_like(starts[:1]))
    expected = lm.logits(hidden[0, last])
    assert (actual - expected).norm() <= 1e-4 * expected.norm()
    for part in ("keys", "values"):
        written, reference = (getattr(cache, part) for cache in caches)
        torch.testing.assert_close(written, reference, atol=3e-4, rtol=0)


def test_tiles_are_those_of_the_kernels() -> None:
    assert TILE == QUERIES
    for choice, plain in PLAIN.items():
        rows = [tile.rows for tile in plain]
        assert rows == sorted({tile.rows for tile in GATED[choice]})


def test_prompts_of_several_rows_are_fed_in_one_launch() -> None:
    lm, kernels = made(torch.float32)
    caches = [KVCache.empty(CONFIG, 4, 64, device=DEVICE) for _ in range(2)]
    ids = torch.randint(0, CONFIG.vocab, (96,), device=DEVICE)
    slots, starts = torch.tensor([[1, 1, 2], [0, 32, 5]], device=DEVICE)
    last = torch.tensor([39, 64 + 20], device=DEVICE)
    actual = kernels.prompt(ids, slots, starts, last, caches[0], 64)
    for row, (first, end, tile) in enumerate(((0, 40, 0), (64, 85, 2))):
        place = starts[tile : tile + 1], caches[1], 64, slots[tile : tile + 1]
        expected = lm.logits(lm.extend(ids[None, first:end], *place)[0, -1:])
        assert (actual[row] - expected).norm() <= 1e-4 * expected.norm()
        slot, begin, length = int(slots[tile]), int(starts[tile]), end - first
        for part in ("keys", "values"):
            written, reference = (
                getattr(cache, part)[:, slot, :, begin : begin + length] for cache in caches
            )
            torch.testing.assert_close(written, reference, atol=3e-4, rtol=0)


def lines(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of rows with all sorts of rules; some wait."""
    ints = torch.zeros(rows, draw.INTS, dtype=torch.long)
    ints[:, draw.SEED] = torch.randint(0, 2**62, (rows,))
    ints[:, draw.ACTIVE] = (torch.arange(rows) % 5 > 0).long()
    ints[:, draw.MIN_TOKENS] = 2
    ints[:, draw.TOP_K] = torch.randint(1, 30, (rows,))
    ints[:, draw.WINDOW] = torch.randint(1, 20, (rows,))
    ints[:, draw.FORBIDDEN] = 0b110
    ints[:, draw.HISTORY :] = -1
    floats = torch.rand(rows, draw.FLOATS, dtype=torch.float64) * 0.9 + 0.05
    floats[::2, draw.MAX_REPEATS] = 0.01
    floats[:, draw.SCALE] = 1 / torch.tensor([1.0, 0.6, 1.7])[torch.arange(rows) % 3]
    return ints.to(DEVICE), floats.to(DEVICE)


def test_a_draw_is_that_of_the_plain_function() -> None:
    _, kernels = made(torch.float32)
    rows = 15
    ints, floats = lines(rows)
    reference = ints.clone()
    outcome = torch.zeros(rows, 2, dtype=torch.float64, device=DEVICE)
    backwards = torch.arange(rows - 1, -1, -1, device=DEVICE)
    for step in range(4):
        logits = 3.0 * torch.randn(rows, CONFIG.classes, device=DEVICE)
        logits[:, 7:9] += 5.0
        logits[0, 3] = torch.nan if step == 3 else 0.0
        expected = draw.draw(logits, reference, floats, CONFIG, 32)
        if step % 2:
            kernels.draw(logits.flip(0).contiguous(), ints, floats, outcome, backwards, 32)
        else:
            kernels.draw(logits, ints, floats, outcome, None, 32)
            reference[:, draw.LENGTH] += reference[:, draw.ACTIVE]  # of what was fed
        assert torch.equal(outcome[:, 0], expected[:, 0])
        torch.testing.assert_close(outcome[1:, 1], expected[1:, 1], atol=1e-5, rtol=0)
        assert torch.equal(ints[1:], reference[1:])
    assert expected[0, 0] == -1
    assert (expected[:, 0] >= 0).sum() == rows - 1


def test_rows_speak_through_the_kernels() -> None:
    config = LMConfig(32, 32, 1, 2, 1, text_vocab=20, speech_tokens=25)
    lm, kernels = made(torch.float32, config)

    def said(use: FusedLM | None) -> list[list[int]]:
        runner = LMRunner(lm, 2, 64)
        runner._graphs._fused = use
        rows = [
            Generation(WholeText(config, [config.sos, 3, seed], 9), seed, Sampling(), 4)
            for seed in range(2)
        ]
        for row in rows:
            runner.join(row)
        while not all(row.finish for row in rows):
            runner.step()
        return [row.tokens for row in rows]

    assert said(kernels) == said(None)


def test_what_is_only_compiled_writes_nothing() -> None:
    ids, table = torch.tensor([2], device=DEVICE), torch.arange(12.0, device=DEVICE).view(3, 4)
    out = torch.full((1, 4), -1.0, device=DEVICE)

    def run() -> None:
        tensors = {"ids": ids, "table": table, "out": out}
        launch(elementwise._embed, (1,), **tensors, stride=1, size=4, pdl=False, block=4)

    with only_compiled():
        run()
    assert (out == -1.0).all()
    run()
    assert torch.equal(out, table[2:])


def test_a_cpu_is_left_alone() -> None:
    lm, _ = made(torch.bfloat16)
    assert fused_lm(lm.cpu(), 64) is None
