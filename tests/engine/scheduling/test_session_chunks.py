"""Sessions share several token2wavs: the least loaded is next, and nobody moves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cosyserve.contracts import AudioChunk
from cosyserve.engine.scheduling.scheduler import Scheduler
from cosyserve.errors import CosyError
from tests.engine.mocks import Clock, CountingLM, HummingToken2Wav, plan, request
from tests.engine.scheduling.test_scheduler import Heard, run, seconds


def scheduler_of(count: int, slots: int = 8) -> tuple[Scheduler, list[HummingToken2Wav]]:
    token2wavs = [HummingToken2Wav() for _ in range(count)]
    return Scheduler(CountingLM(slots), token2wavs, plan, slots=slots, clock=Clock()), token2wavs


def names(token2wav: HummingToken2Wav) -> set[str]:
    return {name for call in token2wav.calls for name in call}


@given(st.integers(1, 4), st.lists(st.integers(1, 120), min_size=1, max_size=12))
def test_everybody_is_served_by_one_device(count: int, sizes: list[int]) -> None:
    scheduler, token2wavs = scheduler_of(count, slots=12)
    heard: list[Heard] = [[] for _ in sizes]
    for number, size in enumerate(sizes):
        scheduler.open(request(f"{number}", size), heard[number].append)
    run(scheduler)
    for size, found in zip(sizes, heard, strict=True):
        assert round(25 * seconds(found)) == size
    served = [names(token2wav) for token2wav in token2wavs]
    assert sum(map(len, served)) == len(sizes) == len(set.union(*served))
    assert max(map(len, served)) - min(map(len, served)) <= 1  # they all came at once
    scheduler.check_idle()


def test_whoever_comes_goes_to_the_device_with_the_fewest() -> None:
    scheduler, token2wavs = scheduler_of(2)
    stays = [scheduler.open(request(name, 500), lambda _: None) for name in ("a", "b", "c")]
    assert [session.device for session in stays] == [0, 1, 0]
    scheduler.cancel(stays[0])
    scheduler.cancel(stays[2])
    assert scheduler.open(request("d", 30), lambda _: None).device == 0
    run(scheduler)
    assert names(token2wavs[1]) == {"b"}


def test_a_broken_device_fails_its_own_sessions_only() -> None:
    scheduler, token2wavs = scheduler_of(2)
    token2wavs[0].broken |= {"a", "b"}
    heard: dict[str, Heard] = {name: [] for name in "ab"}
    for name, found in heard.items():
        scheduler.open(request(name, 60), found.append)
    run(scheduler)
    assert isinstance(heard["a"][-1], CosyError)
    assert isinstance(heard["b"][-1], AudioChunk)
    scheduler.check_idle()
