"""A row does not depend on who shares its batch."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from cosyserve.contracts import Sampling
from cosyserve.engine.compute import lm_runner
from cosyserve.engine.compute.generation import Generation, WholeText
from cosyserve.engine.compute.graphs.device_queue import DeviceQueue
from cosyserve.engine.compute.lm_runner import LMRunner
from cosyserve.errors import CosyError
from cosyserve.models.config import LMConfig
from cosyserve.models.lm.bistream import Bistream
from cosyserve.models.lm.lm import SpeechLM

CONFIG = LMConfig(32, 48, 2, 4, 2, text_vocab=50, speech_tokens=60)
# It has 200 ends: among so few tokens it would draw hardly anything else.
COSYVOICE3 = replace(CONFIG, speech_tokens=600, kind="cosyvoice3")
TEMPERATURES = (1.0, 0.6, 1.7)


@pytest.fixture(scope="module")
def lm() -> SpeechLM:
    return tiny(CONFIG)


def tiny(config: LMConfig) -> SpeechLM:
    torch.manual_seed(0)
    return SpeechLM(config).eval().requires_grad_(False)


def prompt_of(seed: int, length: int = 7, config: LMConfig = CONFIG) -> list[int]:
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 50, (length + seed % 5,), generator=random).tolist()
    return [config.sos, *ids, config.task]


def generation(seed: int, prompt: int = 7, most: int = 14, config: LMConfig = CONFIG) -> Generation:
    text = WholeText(config, prompt_of(seed, prompt, config), 6)
    return Generation(text, seed, Sampling(temperature=TEMPERATURES[seed % 3]), most)


def as_on_a_gpu() -> DeviceQueue:
    """Shapes are rounded up to buckets, and the host reads one step behind."""
    return DeviceQueue(torch.device("cpu"), static=True)


def run(runner: LMRunner, waiting: list[Generation]) -> None:
    """At most one joins a step: all are at different points."""
    while waiting or runner.rows:
        if waiting and runner.free:
            runner.join(waiting.pop(0))
        runner.step()
        for row in [row for row in runner.rows if row.finish]:
            runner.leave(row)


def alone(lm: SpeechLM, seed: int) -> list[int]:
    runner = LMRunner(lm, 1, 64)
    row = generation(seed, config=lm.config)
    runner.join(row)
    while row.finish is None:
        assert runner.step()
    return row.tokens


@pytest.mark.slow
@pytest.mark.parametrize("config", [CONFIG, COSYVOICE3], ids=lambda config: config.kind)
def test_100_seeds_say_the_same_alone_and_in_company(config: LMConfig) -> None:
    lm = tiny(config)
    company = [generation(seed, config=config) for seed in range(100)]
    as_graphs = [generation(seed, config=config) for seed in range(100)]
    run(LMRunner(lm, 8, 64), list(company))
    run(LMRunner(lm, 7, 64, as_on_a_gpu()), list(as_graphs))
    said = [alone(lm, seed) for seed in range(100)]
    for rows in (company, as_graphs):
        same = sum(row.tokens == own for row, own in zip(rows, said, strict=False))
        assert same >= 0.99 * len(rows)
    assert len({tuple(tokens) for tokens in said}) > 90


def test_the_last_token_that_all_wait_for_is_read_before_another_is_drawn(lm: SpeechLM) -> None:
    runner, rows = LMRunner(lm, 2, 64, as_on_a_gpu()), [generation(3), generation(4)]
    for row in rows:
        row.enough = 5
        runner.join(row)
    while len(rows[0].tokens) < 5:
        runner.step()
    assert [(len(row.tokens), row.length) for row in rows] == [
        (5, len(prompt) + 4) for prompt in map(prompt_of, (3, 4))
    ]
    run(runner, [])
    assert [row.tokens for row in rows] == [alone(lm, seed) for seed in (3, 4)]


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


@pytest.mark.parametrize("lengths", [(90, 256), (150, 256), (220, 256), (90, 166, 512)])
def test_a_prompt_that_ends_with_a_span_is_kept_in_company(lengths: tuple[int, ...]) -> None:
    lm = tiny(CONFIG)
    for part in lm.parameters():
        torch.nn.init.normal_(part, 1.0 if part.ndim == 1 else 0.0, 0.3)

    def rows() -> list[Generation]:
        random = torch.Generator().manual_seed(1)
        prompts = [torch.randint(0, 50, (n,), generator=random).tolist() for n in lengths]
        return [Generation(WholeText(CONFIG, ids, 9), 5, Sampling(), 12) for ids in prompts]

    together, apart = rows(), rows()
    runner = LMRunner(lm, 4, 1024, as_on_a_gpu())
    for row in together:
        runner.join(row)
    run(runner, [])
    for row in apart:
        run(LMRunner(lm, 1, 1024), [row])
    assert [row.tokens for row in together] == [row.tokens for row in apart]


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
    runner._graphs.cache.values[:, 1] = torch.nan
    runner.step()
    assert bad.finish == "error"
    assert good.finish is None


def test_the_slot_of_a_broken_row_is_clean_again(lm: SpeechLM) -> None:
    runner = LMRunner(lm, 1, 64)
    runner._graphs.cache.values[:] = torch.nan
    broken = generation(1)
    run(runner, [broken])
    assert broken.finish == "error"
    after = generation(2)
    run(runner, [after])
    assert after.tokens == alone(lm, 2)


def test_the_host_reads_one_step_behind(lm: SpeechLM) -> None:
    runner, row = LMRunner(lm, 2, 64, as_on_a_gpu()), generation(3)
    runner.join(row)
    runner.step()
    assert row.drawn == []
    runner.step()
    assert len(row.drawn) == 1
    while row.finish is None:
        runner.step()
    runner.leave(row)  # though it was stepped once more
    assert runner.step()  # which nobody wants to know
    assert not runner.step()
    assert row.tokens == alone(lm, 3)


def arriving(seed: int, most: int = 30, *, ended: bool = True) -> Generation:
    text = Bistream(CONFIG, [3, 4, 5], [9, 8])
    if ended:
        text.push(range(10, 22))
        text.end()
    return Generation(text, seed, Sampling(), most)


def test_text_in_pieces_and_scores_go_with_all_others(lm: SpeechLM) -> None:
    def rows() -> list[Generation]:
        made = [arriving(1), generation(2), arriving(3), generation(4)]
        made[1].log_probs = []
        return made

    together, one_by_one = rows(), rows()
    run(LMRunner(lm, 4, 128, as_on_a_gpu()), list(together))
    for row in one_by_one:
        run(LMRunner(lm, 1, 128), [row])
    assert [row.drawn for row in together] == [row.drawn for row in one_by_one]
    assert CONFIG.fill in together[0].drawn
    scores = together[1].log_probs or []
    assert len(scores) == len(together[1].tokens)
    assert scores == pytest.approx(one_by_one[1].log_probs, abs=1e-4)


def test_a_long_row_that_waits_behind_short_ones_is_left_alone() -> None:
    """A batch is rounded up to a captured one, which takes its slot along."""
    lm = tiny(CONFIG)
    for part in lm.parameters():
        torch.nn.init.normal_(part, 1.0 if part.ndim == 1 else 0.0, 0.3)

    def said(beside: int) -> list[int]:
        row = Generation(Bistream(CONFIG, [3] * 80, [9, 8] * 120), 1, Sampling(), 30)
        runner = LMRunner(lm, 4, 512, as_on_a_gpu())
        for seed in range(beside):
            runner.join(generation(seed, most=200))
            runner.rows[-1].text.min_tokens = 200
        runner.join(row)
        row.text.push(range(10, 40))
        while row.finish is None and row.text.feed():
            assert runner.step()
        return row.drawn

    assert said(beside=3) == said(beside=0)


@pytest.mark.parametrize("queue", [None, as_on_a_gpu()], ids=["cpu", "as on a gpu"])
def test_a_row_that_leaves_while_it_waits_for_text_goes_on_where_it_was(
    lm: SpeechLM, queue: DeviceQueue | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it was fed is fed anew, in pieces beside the others' steps."""
    monkeypatch.setattr(lm_runner, "PREFILL", 16)
    whole, preempted = arriving(1, 45), arriving(1, 45, ended=False)
    others = [generation(2), arriving(3)]
    run(LMRunner(lm, 1, 128), [whole])
    runner = LMRunner(lm, 3, 128, queue)
    runner.join(others[0])
    left = 0
    for number in range(10, 22):
        preempted.text.push([number])
        if preempted.text.feed() is not None:
            runner.join(preempted)
            while preempted.text.feed() is not None:
                assert runner.step()
            runner.leave(preempted)
            assert (preempted.length, preempted.pending) == (0, [])
            left += 1
    assert left > 1
    preempted.text.end()
    run(runner, [preempted, others[1]])
    assert preempted.drawn == whole.drawn
    assert others[0].tokens == alone(lm, 2)
    assert preempted.fed.count(CONFIG.sos) == 1


def test_scores_are_log_probabilities(lm: SpeechLM) -> None:
    row = generation(6)
    row.log_probs = []
    prompt = list(row.next_inputs())
    run(LMRunner(lm, 1, 64), [row])
    ids = prompt + [CONFIG.text_vocab + token for token in row.tokens]
    scores = lm.logits(lm(torch.tensor([ids]))[0, len(prompt) - 1 : -1]).log_softmax(-1)
    wanted = scores.gather(1, torch.tensor(row.tokens)[:, None])[:, 0]
    assert row.log_probs == pytest.approx(wanted.tolist(), abs=1e-4)


def test_a_cold_row_says_the_likeliest_beside_hot_ones() -> None:
    lm = tiny(CONFIG)
    lm.head.weight *= 20.0  # no two are about as likely
    cold = [generation(seed) for seed in range(3)]
    likeliest = [generation(seed) for seed in range(3)]
    hot = [generation(seed) for seed in range(3)]
    for row in cold:
        row.sampling = Sampling(1.0, CONFIG.classes, max_repeats=2.0, temperature=0.01)
    for row in likeliest:
        row.sampling = Sampling(top_k=1, max_repeats=2.0)
    mixed = [row for pair in zip(cold, hot, strict=True) for row in pair]
    run(LMRunner(lm, 4, 64, as_on_a_gpu()), mixed)
    run(LMRunner(lm, 1, 64), list(likeliest))
    assert [row.tokens for row in cold] == [row.tokens for row in likeliest]
    assert [row.tokens for row in hot] == [alone(lm, seed) for seed in range(3)]


def test_the_end_waits_for_its_time(lm: SpeechLM) -> None:
    rows = [generation(seed) for seed in range(40)]
    for row in rows:
        row.text.min_tokens = 9
    run(LMRunner(lm, 8, 64, as_on_a_gpu()), list(rows))
    assert min(len(row.tokens) for row in rows) >= 9


def test_steps_are_ready_for_every_batch_and_length(lm: SpeechLM) -> None:
    runner = LMRunner(lm, 6, 300, as_on_a_gpu())
    # Batches 1 2 4 6 and pieces, of each spans 256 300; longer pieces are of several rows.
    assert runner.warm_up() == 4 * 2 + 5 * 2 + 2
    row = generation(5)
    run(runner, [row])
    assert row.tokens == alone(lm, 5)


def test_an_utterance_that_outgrows_its_positions_is_told_so(lm: SpeechLM) -> None:
    runner = LMRunner(lm, 1, 16, as_on_a_gpu())
    runner.join(generation(1, most=100))
    with pytest.raises(CosyError, match="16 positions"):
        run(runner, [])
