from __future__ import annotations

import gc
import time
import weakref

from hypothesis import given
from hypothesis import strategies as st

from cosyserve.voices.memory.lru import ByteLRU
from tests.waiting import wait_until


def test_what_was_not_used_for_longest_goes_first() -> None:
    kept: ByteLRU[str] = ByteLRU(10)
    for key in "abc":
        kept.put(key, key.upper(), 3)
    assert kept.get("a") == "A"
    assert "b" in kept  # a look is no use
    kept.put("d", "D", 4)
    assert [key for key in "abcd" if key in kept] == ["a", "c", "d"]
    assert kept.get("b") is None
    assert kept.bytes == 10


def test_another_size_counts_anew_and_the_too_large_is_not_kept() -> None:
    kept: ByteLRU[int] = ByteLRU(10)
    kept.put("a", 1, 6)
    kept.put("a", 2, 9)
    assert (kept.get("a"), kept.bytes, len(kept)) == (2, 9, 1)
    kept.put("b", 3, 11)
    assert kept.get("b") is None
    assert kept.get("a") == 2
    kept.put("a", 4, 11)
    assert (kept.get("a"), kept.bytes) == (None, 0)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 12)), max_size=60))
def test_two_that_see_the_same_hold_the_same(uses: list[tuple[str, int]]) -> None:
    """What a gateway relies on: it never asks a worker which voices that still has."""
    ours: ByteLRU[None] = ByteLRU(20)
    theirs: ByteLRU[int] = ByteLRU(20)
    for key, size in uses:
        if key in ours:
            ours.get(key)
            assert theirs.get(key) is not None
        else:
            ours.put(key, None, size)
            theirs.put(key, size, size)
        assert ours.bytes == theirs.bytes <= 20
        assert [k for k in "abcdef" if k in ours] == [k for k in "abcdef" if k in theirs]


def test_what_nobody_uses_goes_by_itself() -> None:
    kept: ByteLRU[str] = ByteLRU(10, idle_seconds=0.3)
    kept.put("a", "A", 3)
    kept.put("b", "B", 3)
    until = time.monotonic() + 0.45
    while time.monotonic() < until:
        assert kept.get("a") == "A"  # a use keeps it
        time.sleep(0.02)
    assert "b" not in kept
    wait_until(lambda: not len(kept))
    assert kept.bytes == 0
    assert kept._timer is None


def test_a_cache_that_nobody_has_any_more_is_no_timers_business() -> None:
    kept: ByteLRU[str] = ByteLRU(10, idle_seconds=60)
    kept.put("a", "A", 3)
    reference = weakref.ref(kept)
    del kept
    gc.collect()
    assert reference() is None
