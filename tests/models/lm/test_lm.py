from __future__ import annotations

import pytest
import torch

from cosyserve.models.config import LMConfig
from cosyserve.models.lm.lm import KVCache, Linear, SpeechLM

CONFIG = LMConfig(32, 48, 2, 4, 2, text_vocab=50, speech_tokens=20)


@pytest.fixture(scope="module")
def lm() -> SpeechLM:
    torch.manual_seed(0)
    return SpeechLM(CONFIG).eval().requires_grad_(False)


def ids(*lengths: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(0, CONFIG.vocab, (n,), generator=generator) for n in lengths]


@pytest.mark.parametrize("cuts", [[12], [5, 12], [1, 2, 3, 12], list(range(1, 13))])
def test_cached_pieces_equal_the_whole_sequence(lm: SpeechLM, cuts: list[int]) -> None:
    (row,) = ids(12)
    cache = KVCache.empty(CONFIG, 1, 16)
    at, hidden = 0, []
    for cut in cuts:
        hidden.append(lm.extend(row[None, at:cut], torch.tensor([at]), cache, cut))
        at = cut
    torch.testing.assert_close(torch.cat(hidden, 1), lm(row[None]), atol=1e-5, rtol=0)


def test_a_row_does_not_depend_on_its_neighbours(lm: SpeechLM) -> None:
    rows = ids(3, 9, 6)
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    together = KVCache.empty(CONFIG, 3, 16)
    first = lm.extend(padded, torch.zeros(3, dtype=torch.long), together, 9)
    lengths = torch.tensor([len(row) for row in rows])
    following = torch.tensor([[7], [8], [9]])
    step = lm.extend(following, lengths, together, 10)
    for index, row in enumerate(rows):
        alone = lm(torch.cat((row, following[index]))[None])[0]
        torch.testing.assert_close(first[index, : len(row)], alone[:-1], atol=1e-5, rtol=0)
        torch.testing.assert_close(step[index, 0], alone[-1], atol=1e-5, rtol=0)


def test_a_wider_span_changes_nothing(lm: SpeechLM) -> None:
    (row,) = ids(6)
    narrow, wide = KVCache.empty(CONFIG, 1, 32), KVCache.empty(CONFIG, 1, 32)
    start = torch.zeros(1, dtype=torch.long)
    a = lm.extend(row[None], start, narrow, 6)
    b = lm.extend(row[None], start, wide, 32)
    torch.testing.assert_close(a, b, atol=1e-6, rtol=0)


def test_it_can_be_trained() -> None:
    lm = SpeechLM(CONFIG)
    (row,) = ids(10)
    lm.logits(lm(row[None])).logsumexp(-1).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in lm.parameters())


def test_ids_lie_in_one_table() -> None:
    config = LMConfig()
    assert (config.eos, config.fill, config.classes) == (6561, 6563, 6564)
    assert (config.sos, config.task, config.vocab) == (158_500, 158_501, 158_502)


@pytest.mark.parametrize("outputs", [7, 64, 200])
@pytest.mark.parametrize("bias", [True, False])
def test_blocks_of_weights_are_the_same_product(outputs: int, bias: bool) -> None:
    torch.manual_seed(0)
    linear = Linear(96, outputs, bias=bias)
    for rows in range(1, 20):
        x = torch.randn(rows, 1, 96)
        plain = torch.nn.functional.linear(x, linear.weight, linear.bias)
        torch.testing.assert_close(linear(x), plain, atol=1e-5, rtol=1e-5)


def test_an_empty_cache_is_all_zeros_that_may_be_written() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        cache = KVCache.empty(LMConfig(32, 48, 2, 4, 2), 3, 40, dtype=dtype)
        assert cache.keys.shape == (2, 3, 2, 40, 8)
        assert cache.keys.dtype is cache.values.dtype is dtype
        assert not cache.keys.any()
        cache.values[1, 2] = 1
        assert not cache.keys.any()
        assert cache.values.sum() == 2 * 40 * 8
