"""What a worker says of itself, and when."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch

from cosyserve.checkpoints.model import Model
from cosyserve.contracts import Pushed, SpeechRequest
from cosyserve.engine.compute.lm_runner import LMRunner
from cosyserve.engine.compute.queued_audio import QueuedAudio
from cosyserve.engine.compute.token2wav import Token2Wav
from cosyserve.engine.workers import outbox, worker
from cosyserve.engine.workers.messages import (
    Alive,
    Chunk,
    Open,
    Push,
    Ready,
    Stats,
    bodies,
    frame,
    from_worker,
)
from cosyserve.engine.workers.options import WorkerOptions
from cosyserve.engine.workers.worker import Worker
from cosyserve.voices.memory.mirror import voice_bytes
from cosyserve.voices.shipped import describe
from tests.waiting import PATIENCE


@contextmanager
def working(model: Model) -> Iterator[tuple[socket.socket, Worker]]:
    """A worker that runs, behind a link."""
    ours, theirs = socket.socketpair()
    with theirs, ours:
        ours.settimeout(PATIENCE)
        far = Worker(theirs, model, WorkerOptions("test", device="cpu", slots=1))
        thread = threading.Thread(target=far.run, daemon=True)
        thread.start()
        yield ours, far
        ours.shutdown(socket.SHUT_WR)
        thread.join(PATIENCE)


def test_who_comes_alone_hears_speech_before_anybody_counts(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "STATS_SECONDS", 3600.0)
    voice = next(iter(describe(model).voices.values()))
    with working(model) as (ours, _), ours.makefile("rb") as stream:
        heard = map(from_worker.decode, bodies(stream))
        said = (message for message in heard if not isinstance(message, Alive))
        assert isinstance(next(said), Ready)
        for number in range(2):
            request = SpeechRequest("Hello.", voice, voice.mode, stream=True)
            ours.sendall(frame(Open.of(number, request, None if number else voice_bytes(voice))))
            final = False
            for message in said:
                if isinstance(message, Chunk):
                    final = message.chunk.final
                    continue
                assert isinstance(message, Stats)
                assert (message.stats.running, message.stats.waiting) == (0, 0)
                if final:
                    assert message.stats.sessions == number + 1
                    break


@pytest.mark.parametrize(
    "never_ends", [(Token2Wav, "begin"), (LMRunner, "step"), (QueuedAudio, "poll")]
)
@pytest.mark.parametrize("gpu", [True, False])
def test_a_gpu_that_stops_is_no_sign_of_life(
    never_ends: tuple[type, str], gpu: bool, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, pause = 0.3, 0.02
    monkeypatch.setattr(worker, "GPU_SECONDS", limit)
    monkeypatch.setattr(outbox, "ALIVE_SECONDS", pause)
    voice = next(iter(describe(model).voices.values()))
    stopped, again = threading.Event(), threading.Event()
    goes_on = getattr(*never_ends)

    def stop(compute: Token2Wav | LMRunner | QueuedAudio, *args: Any, **options: Any) -> Any:
        stopped.set()
        if isinstance(compute, QueuedAudio):  # the host does not wait for it
            return goes_on(compute) if again.is_set() else False
        again.wait()
        return goes_on(compute, *args, **options)

    monkeypatch.setattr(*never_ends, stop)
    with working(model) as (ours, far):
        monkeypatch.setattr(far, "_gpus", [torch.device("cuda")] if gpu else [])
        request = SpeechRequest("Hello.", voice, voice.mode)
        ours.sendall(frame(Open.of(0, request, voice_bytes(voice))))
        assert stopped.wait(PATIENCE)
        time.sleep(limit + 2 * pause)
        while len(ours.recv(1 << 16)) == 1 << 16:
            pass
        ours.settimeout(20 * pause)
        with pytest.raises(TimeoutError) if gpu else nullcontext():
            assert ours.recv(1)
        again.set()
        ours.settimeout(PATIENCE)
        assert ours.recv(1)


def test_counts_are_told_though_everybody_waits_for_a_text(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "STATS_SECONDS", 3600.0)
    monkeypatch.setattr(outbox, "ALIVE_SECONDS", 0.05)
    voice = next(iter(describe(model).voices.values()))
    with working(model) as (ours, _), ours.makefile("rb") as stream:
        request = SpeechRequest(Pushed(), voice, voice.mode, stream=True)
        ours.sendall(frame(Open.of(0, request, voice_bytes(voice))))
        ours.sendall(frame(Push(0, "Hello")))
        heard = map(from_worker.decode, bodies(stream))
        told = (message.stats for message in heard if isinstance(message, Stats))
        assert any(stats.running + stats.waiting == 1 for stats in told)
