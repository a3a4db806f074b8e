"""Slots of a prefix cache: who gets one, who may read it, and which is used anew."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from cosyserve.engine.compute import gpu_memory
from cosyserve.engine.compute.graphs import prefix_cache
from cosyserve.engine.compute.graphs.device_queue import Mark
from cosyserve.engine.compute.graphs.prefix_cache import MAX_SLOTS, Borrowed, PrefixCache
from cosyserve.engine.compute.limits import MAX_PREFIX_TOKENS
from cosyserve.models.config import EncoderConfig, FlowConfig, UNetConfig
from cosyserve.models.flow.flow import Flow
from cosyserve.models.flow.stream import FlowPrompt

CONFIG = FlowConfig(
    EncoderConfig(32, 2, 48, 1, 1, chunk=10), UNetConfig("unet", 32, 2, 16, 1, 1), speech_tokens=30
)
PASSED = Mark(None)


class Pending(Mark):
    """A point of a queue that a GPU may or may not have reached."""

    def __init__(self) -> None:
        super().__init__(None)
        self.reached = False

    @property
    def passed(self) -> bool:
        return self.reached


@pytest.fixture(scope="module")
def flow() -> Flow:
    return Flow(CONFIG).requires_grad_(False)


@pytest.fixture
def cache(flow: Flow) -> PrefixCache:
    return PrefixCache(flow, [(2, 8)], slots=2)


def prompt_of(key: str, tokens: int = 25) -> FlowPrompt:
    return FlowPrompt(
        torch.zeros(tokens, dtype=torch.long), torch.zeros(2 * tokens, 80), torch.zeros(192), key
    )


def taken(cache: PrefixCache, key: str) -> Borrowed:
    borrowed = cache.borrow(prompt_of(key))
    assert borrowed
    return borrowed


def fill(cache: PrefixCache, key: str, end: Mark = PASSED) -> None:
    cache.give_back(taken(cache, key), end, done=True)


def test_a_voice_fills_a_slot_and_reads_it_from_then_on(cache: PrefixCache) -> None:
    first = taken(cache, "a")
    assert (first.known, first.wanted) == (0, 20)  # of 25 tokens, three of which see what is said
    assert cache.borrow(prompt_of("a")) is None  # not there yet
    end = Pending()
    cache.give_back(first, end, done=True)
    assert cache.known(prompt_of("a")) == 0
    end.reached = True
    assert cache.known(prompt_of("a")) == 20
    again = taken(cache, "a")
    assert (again.slot, again.known, again.wanted) == (first.slot, 20, 0)


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [
        (prompt_of("", 25), None),  # nobody knows whose
        (prompt_of("a", 12), None),  # less than a chunk, but for what sees ahead
        (prompt_of("a", 13), 10),
        (prompt_of("a", 5 * MAX_PREFIX_TOKENS), MAX_PREFIX_TOKENS),
    ],
)
def test_a_prefix_is_whole_chunks(
    cache: PrefixCache, prompt: FlowPrompt, tokens: int | None
) -> None:
    borrowed = cache.borrow(prompt)
    assert (borrowed.wanted if borrowed else None) == tokens


def test_the_voice_that_was_heard_least_recently_makes_room(cache: PrefixCache) -> None:
    fill(cache, "a")
    fill(cache, "b")
    cache.give_back(taken(cache, "a"), PASSED, done=True)
    fill(cache, "c")
    assert [cache.known(prompt_of(key)) for key in "abc"] == [20, None, 20]


def test_a_slot_in_use_is_not_given_away(cache: PrefixCache) -> None:
    fill(cache, "a")
    fill(cache, "b")
    reading, end = taken(cache, "a"), Pending()
    cache.give_back(taken(cache, "b"), end, done=True)  # queued, but the GPU is not there yet
    assert cache.borrow(prompt_of("c")) is None
    cache.give_back(reading, PASSED, done=True)
    assert taken(cache, "c").slot is reading.slot
    assert cache.known(prompt_of("b")) == 20


def test_work_that_was_given_up_leaves_nothing_to_read(cache: PrefixCache) -> None:
    end = Pending()
    cache.give_back(taken(cache, "a"), end, done=False)
    end.reached = True
    assert cache.known(prompt_of("a")) is None
    fill(cache, "a")
    assert cache.known(prompt_of("a")) == 20


def test_a_voice_that_is_heard_all_day_keeps_nothing_of_what_is_over(cache: PrefixCache) -> None:
    fill(cache, "a")
    for _ in range(100):
        cache.give_back(taken(cache, "a"), PASSED, done=True)
    assert len(taken(cache, "a").slot.ends) == 1


def test_what_was_computed_wrongly_is_forgotten(cache: PrefixCache) -> None:
    fill(cache, "a")
    cache.forget(prompt_of("a"))
    cache.forget(prompt_of("unknown"))
    assert cache.known(prompt_of("a")) is None
    assert taken(cache, "a").wanted == 20


def test_lines_of_the_memory_are_apart_and_doubled_for_guidance(
    cache: PrefixCache, flow: Flow
) -> None:
    rows = [taken(cache, "a"), None, taken(cache, "b")]
    columns = cache.columns(rows)
    assert [line for line, *_ in (columns[0], columns[2])] == [0, 2]
    assert columns[1][1:] == [0, 0]
    assert [memory.shape for memory in cache.memories] == [(10, 4, 2, 8)]
    alone = Flow(replace(CONFIG, guidance=0.0)).requires_grad_(False)
    assert PrefixCache(alone, [(2, 8)], slots=3).memories[0].shape[1] == 3


def test_a_device_without_memory_to_spare_has_none(flow: Flow) -> None:
    assert PrefixCache.of(flow, [(300, 1024)], 8) is None


@pytest.mark.parametrize(
    ("free", "rows", "voices"),
    [(30, 8, 3), (40, 8, 4), (60, 8, 10), (10_000, 12, MAX_SLOTS), (10_000, 1, 8)],
    ids=["a tenth", "just enough", "half of what is beyond", "the most", "for one listener"],
)
def test_voices_have_a_share_of_the_free_memory(
    flow: Flow, free: int, rows: int, voices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here in multiples of a slot's size, where 40 are enough for all else."""
    places = [(2, 8)]
    size = CONFIG.copies * CONFIG.steps * 2 * 8 * flow.weight.element_size()
    monkeypatch.setattr(gpu_memory, "free_bytes", lambda device: free * size)
    monkeypatch.setattr(prefix_cache, "ENOUGH", 40 * size)
    cache = PrefixCache.of(flow, places, rows)
    assert cache
    assert cache.memories[0].shape[1] == CONFIG.copies * voices
