"""What a worker says of itself, and when."""

from __future__ import annotations

import socket
import threading

import pytest

from cosyserve.checkpoints.model import Model
from cosyserve.contracts import SpeechRequest
from cosyserve.engine.workers import worker
from cosyserve.engine.workers.messages import (
    Alive,
    Chunk,
    Open,
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


def test_who_comes_alone_hears_speech_before_anybody_counts(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "STATS_SECONDS", 3600.0)
    voice = next(iter(describe(model).voices.values()))
    ours, theirs = socket.socketpair()
    with theirs, ours, ours.makefile("rb") as stream:
        ours.settimeout(PATIENCE)
        far = Worker(theirs, model, WorkerOptions("test", device="cpu", slots=1))
        thread = threading.Thread(target=far.run)
        thread.start()
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
        ours.shutdown(socket.SHUT_WR)
        thread.join(PATIENCE)
