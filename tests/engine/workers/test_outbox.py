"""What a worker says leaves in order and at once; who does not read holds up nobody."""

from __future__ import annotations

import socket
import threading
import time

import numpy as np
import pytest

from cosyserve.contracts import AudioChunk
from cosyserve.engine.workers import outbox
from cosyserve.engine.workers.messages import Alive, Chunk, bodies, from_worker
from cosyserve.engine.workers.outbox import Outbox

SAMPLES = 100_000  # 400 kB: more than a link takes at once


def said(number: int, samples: int = 10) -> Chunk:
    return Chunk(number, AudioChunk(np.full(samples, number, np.float32), 0, 0.0, tokens=1))


def never() -> None:
    raise AssertionError("the link is whole")


def read(link: socket.socket, count: int) -> list[Chunk]:
    link.settimeout(5)
    with link.makefile("rb") as stream:
        arriving = bodies(stream)
        found = [from_worker.decode(next(arriving)) for _ in range(count)]
    assert all(isinstance(one, Chunk) for one in found)
    return [one for one in found if isinstance(one, Chunk)]


def test_a_message_is_on_the_link_when_it_was_put() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        box = Outbox(theirs, never, Alive)
        box.put(said(3))
        ours.setblocking(False)
        assert len(ours.recv(1 << 16)) > 40
        box.close()


def test_who_does_not_read_holds_up_nobody_and_misses_nothing() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        box = Outbox(theirs, never, Alive)
        begun = time.monotonic()
        for number in range(20):
            box.put(said(number, SAMPLES if number % 3 else 10))
        assert time.monotonic() - begun < 1
        heard = read(ours, 20)
        box.close()
    assert [one.id for one in heard] == list(range(20))
    assert all((one.chunk.samples == one.id).all() for one in heard)


def test_frames_of_several_threads_stay_whole() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        box = Outbox(theirs, never, Alive)
        threads = [
            threading.Thread(target=lambda id=id: [box.put(said(id, 30_000)) for _ in range(20)])
            for id in range(4)
        ]
        for thread in threads:
            thread.start()
        heard = read(ours, 80)
        for thread in threads:
            thread.join()
        box.close()
    assert sorted(one.id for one in heard) == sorted(20 * [0, 1, 2, 3])
    assert all((one.chunk.samples == one.id).all() for one in heard)


def test_last_words_are_heard() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        box = Outbox(theirs, never, Alive)
        for number in range(4):
            box.put(said(number, SAMPLES))
        reader = threading.Thread(target=lambda: heard.extend(read(ours, 4)))
        heard: list[Chunk] = []
        reader.start()
        box.close()
        reader.join(5)
    assert [one.id for one in heard] == [0, 1, 2, 3]


@pytest.mark.parametrize("samples", [10, SAMPLES])
def test_a_far_end_that_has_gone_is_told(samples: int) -> None:
    ours, theirs = socket.socketpair()
    gone = threading.Event()
    with theirs:
        box = Outbox(theirs, gone.set, Alive)
        ours.close()
        box.put(said(1, samples))
        assert gone.wait(5)


def test_signs_of_life_are_given_only_while_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "ALIVE_SECONDS", 0.01)
    ours, theirs = socket.socketpair()
    lives, asked = threading.Event(), threading.Semaphore(0)

    def sign_of_life() -> Alive | None:
        asked.release()
        return Alive() if lives.is_set() else None

    with ours, theirs, ours.makefile("rb") as stream:
        ours.settimeout(5)
        box = Outbox(theirs, never, sign_of_life)
        assert all(asked.acquire(timeout=5) for _ in range(3))
        box.put(said(7))
        heard = map(from_worker.decode, bodies(stream))
        assert isinstance(next(heard), Chunk)
        lives.set()
        assert isinstance(next(heard), Alive)
        box.close()
