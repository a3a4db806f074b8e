"""A row does not depend on who shares its batch."""

from __future__ import annotations

import pytest
import torch

from cosyserve.contracts import Sampling
from cosyserve.engine import lm_runner
from cosyserve.engine.generation import Generation, WholeText
from cosyserve.engine.lm_runner import LMRunner
from cosyserve.models.config import LMConfig
from cosyserve.models.lm import SpeechLM

CONFIG = LMConfig(32, 48, 2, 4, 2, text_vocab=50, speech_tokens=60)


@pytest.fixture(scope="module")
def lm() -> SpeechLM:
    torch.manual_seed(0)
    return SpeechLM(CONFIG).eval().requires_grad_(False)


def generation(seed: int, prompt: int = 7, most: int = 14) -> Generation:
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 50, (prompt + seed % 5,), generator=random).tolist()
    text = WholeText(CONFIG, [CONFIG.sos, *ids, CONFIG.task], 6)
    return Generation(text, seed, Sampling(), most)


def alone(lm: SpeechLM, seed: int) -> list[int]:
    runner = LMRunner(lm, 1, 64)
    row = generation(seed)
    runner.join(row)
    while row.finish is None:
        assert runner.step()
    return row.tokens


def test_300_seeds_say_the_same_alone_and_in_company(lm: SpeechLM) -> None:
    runner = LMRunner(lm, 8, 64)
    waiting = [generation(seed) for seed in range(300)]
    spoken: dict[int, list[int]] = {}
    while waiting or runner.rows:
        if waiting and runner.free:  # at most one joins a step: all are at different points
            runner.join(waiting.pop(0))
        runner.step()
        for row in [row for row in runner.rows if row.finish]:
            runner.leave(row)
            spoken[row.seed] = row.tokens
    same = sum(spoken[seed] == alone(lm, seed) for seed in range(300))
    assert same >= 297
    assert len({tuple(tokens) for tokens in spoken.values()}) > 250


def test_a_long_prompt_does_not_stall_the_others(
    lm: SpeechLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lm_runner, "PREFILL", 4)
    runner = LMRunner(lm, 2, 256)
    quick, slow = generation(1), generation(2, prompt=100)
    runner.join(quick)
    while not quick.drawn:
        runner.step()
    runner.join(slow)
    while not slow.tokens and not quick.finish:
        before = len(quick.drawn)
        runner.step()
        assert len(quick.drawn) == before + 1 or quick.finish


def test_prompts_in_pieces_lead_to_the_same_speech(
    lm: SpeechLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = alone(lm, 11)
    monkeypatch.setattr(lm_runner, "PREFILL", 3)
    assert alone(lm, 11) == whole


def test_rows_that_leave_make_room_in_any_order(lm: SpeechLM) -> None:
    runner = LMRunner(lm, 3, 64)
    rows = [generation(seed) for seed in (3, 4, 5)]
    for row in rows:
        runner.join(row)
    for _ in range(6):
        runner.step()
    runner.leave(rows[0])  # the last one moves to its slot
    for _ in range(4):
        runner.step()
    assert rows[2].tokens == alone(lm, 5)[: len(rows[2].tokens)]
    assert rows[1].tokens == alone(lm, 4)[: len(rows[1].tokens)]
    assert runner.free == 1


def test_broken_numbers_end_their_own_row_only(lm: SpeechLM) -> None:
    runner = LMRunner(lm, 2, 64)
    good, bad = generation(1), generation(2)
    runner.join(good)
    runner.join(bad)
    while not (good.tokens and bad.tokens):
        runner.step()
    runner._cache.values[:, 1] = torch.nan
    runner.step()
    assert bad.finish == "error"
    assert good.finish is None
