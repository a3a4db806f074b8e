"""In numpy a step is that of the plain module, and what is drawn is what torch draws."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from cosyserve.contracts import Sampling
from cosyserve.models.config import LMConfig
from cosyserve.models.lm import host
from cosyserve.models.lm.draw import (
    ACTIVE,
    FORBIDDEN,
    HISTORY,
    INTS,
    MIN_TOKENS,
    SEED,
    STEP,
    TOP_K,
    WINDOW,
    draw,
    float_rules,
    forbidden_bits,
)
from cosyserve.models.lm.host import HostLM, host_lm
from cosyserve.models.lm.lm import KVCache, SpeechLM

CONFIG = LMConfig(112, 160, 2, 7, 1, text_vocab=50, speech_tokens=60)
COSYVOICE3 = replace(CONFIG, kind="cosyvoice3")  # with 200 ends


@pytest.fixture(scope="module")
def lm() -> SpeechLM:
    torch.manual_seed(0)
    lm = SpeechLM(CONFIG).eval().requires_grad_(False)
    for parameter in lm.parameters():
        if parameter.ndim == 1:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return lm


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_a_step_is_that_of_the_plain_module(lm: SpeechLM, rows: int) -> None:
    caches = [KVCache.empty(CONFIG, rows + 1, 96) for _ in range(2)]
    for part in ("keys", "values"):
        filled = torch.randn_like(getattr(caches[0], part))
        for cache in caches:
            getattr(cache, part).copy_(filled)
    ids = torch.randint(0, CONFIG.vocab, (rows,))
    lengths = torch.randint(0, 80, (rows,))
    lengths[-1] = 70  # a row that only waits may stand behind what is looked at
    with torch.inference_mode():
        actual = HostLM(lm).logits(ids, lengths, caches[0], 64)
        expected = lm.logits(lm.extend(ids[:, None], lengths, caches[1], 64)[:, 0])
    inside = lengths < 64
    torch.testing.assert_close(actual[inside], expected[inside], atol=1e-4, rtol=1e-4)
    for part in ("keys", "values"):
        written, reference = (getattr(cache, part) for cache in caches)
        torch.testing.assert_close(written, reference, atol=1e-4, rtol=1e-4)


def lines(
    rows: int, sampling: Sampling, min_tokens: int, config: LMConfig = CONFIG
) -> tuple[torch.Tensor, torch.Tensor]:
    ints = torch.zeros(rows, INTS, dtype=torch.long)
    ints[:, HISTORY:] = -1
    ints[:, SEED] = torch.arange(rows) + (1 << 40)
    ints[:, ACTIVE] = 1
    ints[:, MIN_TOKENS] = min_tokens
    ints[:, TOP_K], ints[:, WINDOW] = sampling.top_k, sampling.window
    ints[:, FORBIDDEN] = forbidden_bits(config, config.control[1:2])
    floats = torch.tensor([float_rules(sampling)], dtype=torch.float64)
    return ints, floats.repeat(rows, 1)


@pytest.mark.parametrize("config", [CONFIG, COSYVOICE3], ids=["cosyvoice2", "cosyvoice3"])
@pytest.mark.parametrize(
    "sampling",
    [
        *(Sampling(), Sampling(top_p=1.0, top_k=500), Sampling(0.5, 3, 64, 0.02)),
        *(Sampling(top_k=1), Sampling(temperature=0.7), Sampling(1.0, 500, temperature=1.6)),
    ],
    ids=["usual", "all", "few", "best", "cold", "hot"],
)
def test_what_is_drawn_is_what_torch_draws(sampling: Sampling, config: LMConfig) -> None:
    rows, numpy = 4, HostLM(SpeechLM(config).requires_grad_(False))
    ints, floats = lines(rows, sampling, 20, config)
    # Of a row, all ends but the first are forbidden, too.
    ints[0, FORBIDDEN] = forbidden_bits(config, config.control[1:])
    expected_ints = ints.clone()
    random = torch.Generator().manual_seed(1)
    for _ in range(100):
        # Rounded, so that many are equally likely.
        logits = (torch.randn(rows, config.classes, generator=random) * 6).round() / 3
        actual = numpy.draw(logits, ints, floats)
        expected = draw(logits, expected_ints, floats, config, config.classes)
        assert torch.equal(actual[:, 0], expected[:, 0])
        torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)
        assert torch.equal(ints, expected_ints)


def test_no_number_is_drawn_from_logits_that_are_none(lm: SpeechLM) -> None:
    ints, floats = lines(4, Sampling(), min_tokens=0)
    ints[2, ACTIVE] = 0
    ints[3] = 0
    ints[3, ACTIVE] = 1  # nobody's line
    logits = torch.randn(4, CONFIG.classes)
    logits[1, 5] = torch.nan
    drawn = HostLM(lm).draw(logits, ints, floats)[:, 0].tolist()
    assert drawn[0] >= 0
    assert drawn[1] == drawn[3] == -1
    assert ints[2, STEP] == 0, "a row that waits does not go on"


def test_only_small_ones_are_computed_in_numpy(
    lm: SpeechLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert host_lm(lm) is not None
    assert host_lm(SpeechLM(CONFIG).to(torch.bfloat16)) is None
    monkeypatch.setattr(host, "MAX_WEIGHTS", 1000)
    assert host_lm(lm) is None
