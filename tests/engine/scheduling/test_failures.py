"""What goes wrong in a scheduler: sessions, plans, LMs, GPUs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from cosyserve.contracts import AudioChunk, Floats
from cosyserve.engine.scheduling.chunks import Chunks, Token2WavLike
from cosyserve.errors import CosyError, WorkerError
from tests.engine.mocks import Clock, mock_scheduler, request
from tests.engine.scheduling.test_scheduler import Heard, run, seconds


def test_a_broken_session_does_not_take_others_along() -> None:
    scheduler, token2wav, _, _ = mock_scheduler()
    token2wav.broken = {"bad"}
    heard: dict[str, Heard] = {"good": [], "bad": [], "fine": []}
    for name, found in heard.items():
        scheduler.open(request(name, 30), found.append)
    run(scheduler)
    assert seconds(heard["good"]) == seconds(heard["fine"]) == pytest.approx(30 / 25)
    (error,) = heard["bad"]
    assert "bad is broken" in str(error)
    scheduler.check_idle()


def test_an_lm_that_fails_ends_its_sessions_with_an_error() -> None:
    scheduler, _, lm, _ = mock_scheduler()
    heard: Heard = []
    scheduler.open(request("a", 30), heard.append)
    scheduler.step()
    lm.step = lambda: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    scheduler.step()
    (error,) = heard
    assert isinstance(error, CosyError)
    scheduler.check_idle()


def test_a_request_that_cannot_be_planned_is_told_so() -> None:
    scheduler, _, _, _ = mock_scheduler()
    scheduler.plan = lambda *_: 1 / 0  # type: ignore[assignment, return-value]
    with pytest.raises(CosyError, match="internal error"):
        scheduler.open(request("a", 5), lambda _: None)
    scheduler.check_idle()


def test_nothing_said_is_tried_once_more_and_then_told() -> None:
    scheduler, _, _, _ = mock_scheduler()
    heard: Heard = []
    session = scheduler.open(request("a", 0), heard.append)
    run(scheduler)
    (error,) = heard
    assert "before it said anything" in str(error)
    assert session.retries == 1


def test_silence_is_no_success() -> None:
    scheduler, token2wav, _, _ = mock_scheduler()
    token2wav.silent = {"a"}
    heard: Heard = []
    scheduler.open(request("a", 10, stream=False), heard.append)
    run(scheduler)
    (error,) = heard
    assert "silent" in str(error)


def test_a_second_attempt_begins_afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler, token2wav, _, _ = mock_scheduler()
    token2wav.silent = {"a"}
    compute = token2wav._one

    def once(*row: Any) -> Any:
        found = compute(*row)
        token2wav.silent.clear()
        return found

    monkeypatch.setattr(token2wav, "_one", once)
    heard: Heard = []
    scheduler.open(request("a", 10, stream=False), heard.append)
    run(scheduler)
    (chunk,) = heard
    assert isinstance(chunk, AudioChunk)
    assert (chunk.tokens, len(chunk.samples)) == (10, 9600)


def test_a_gpu_without_memory_is_a_clear_error() -> None:
    scheduler, token2wav, _, _ = mock_scheduler()

    def full(*row: Any, **options: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    token2wav.start = full  # type: ignore[method-assign]
    heard: Heard = []
    scheduler.open(request("a", 30), heard.append)
    run(scheduler)
    (error,) = heard
    assert isinstance(error, WorkerError)
    scheduler.check_idle()


@pytest.mark.parametrize("part", ["lm", "token2wav"])
def test_a_gpu_that_has_failed_ends_its_process(part: str) -> None:
    scheduler, token2wav, lm, _ = mock_scheduler()

    def failed(*row: Any, **options: Any) -> Any:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    heard: Heard = []
    scheduler.open(request("a", 30), heard.append)
    scheduler.step()
    if part == "lm":
        lm.step = failed  # type: ignore[method-assign]
    else:
        token2wav.start = failed  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="illegal memory"):
        run(scheduler)
    (error,) = heard
    assert isinstance(error, WorkerError)


def test_what_is_queued_is_computed_before_a_failed_batch_is_tried_again() -> None:
    """Batches of a queue share their buffers: one that is queued by halves must not go on in those
    of another."""
    events: list[str] = []

    class Audio:
        launched = True

        def __init__(self, names: str) -> None:
            self.names = names
            events.append(f"start {names}")

        def poll(self) -> bool:
            return self.names == "ab"

        def get(self) -> list[tuple[Floats, str]]:
            events.append(f"get {self.names}")
            if self.names == "ab":
                raise CosyError("no numbers")
            return [(np.zeros(1, np.float32), self.names)]

    class Token2Wav:
        def start(self, states: list[str], *_: object, urgent: bool) -> Audio:
            return Audio("".join(states))

    def source(name: str) -> Any:
        return SimpleNamespace(
            state=name, urgent=False, stream=True, final=False, done=False, due=list
        )

    chunks: Chunks[Any] = Chunks(cast("Token2WavLike", Token2Wav()), Clock())
    chunks.start([source("a"), source("b")])
    chunks.start([source("c")])
    assert [one.state for one, _ in chunks.finished()] == ["a", "b"]
    assert events[2:4] == ["get ab", "get c"]
    assert events[4:] == ["start a", "get a", "start b", "get b"]
