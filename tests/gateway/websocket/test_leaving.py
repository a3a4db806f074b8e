"""Clients of the WebSocket that leave take all along, whenever it is; so do those who hang."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import time
from pathlib import Path

import pytest

from cosyserve.audio import AudioFormat, encode
from cosyserve.gateway.connection import connection, utterance
from cosyserve.settings import Settings
from tests.gateway.serving import Running, serving
from tests.gateway.sine_engine import SineEngine
from tests.gateway.talking import Talk, talking
from tests.waiting import wait_until


def vanish(talk: Talk) -> None:
    """As a process that dies does."""
    talk.socket.socket.shutdown(socket.SHUT_RDWR)


def wait_until_gone(server: Running) -> None:
    server.wait_until_idle()
    wait_until(lambda: not server.app.state.connections.count)


@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize("politely", [True, False])
def test_at_every_stage(server: Running, stage: int, politely: bool) -> None:
    server.behave(delay=30.0)
    with talking(server.url) as talk:
        if stage > 0:
            talk.start()
        if stage > 1:
            talk.text("Hello.")
        if stage > 2:
            talk.send("end")
            talk.hear("started")
            assert talk.socket.recv(timeout=5)
        (talk.socket.close if politely else lambda: vanish(talk))()
        wait_until_gone(server)


def test_100_clients_at_random_points(server: Running) -> None:
    server.behave(chunks=10, chunk_tokens=5, first_delay=0.005, delay=0.005)
    with talking(server.url) as talk:
        talk.say()
    wait_until_gone(server)
    files = len(list(Path("/proc/self/fd").iterdir()))
    tasks = len(asyncio.all_tasks(server.loop))
    chance = random.Random(0)
    formats = ["pcm", "mp3", "opus", "flac"]
    for _ in range(100):
        with talking(server.url) as talk:
            deeds = [
                lambda talk: talk.start(response_format=chance.choice(formats)),
                lambda talk: talk.text("Hello."),
                lambda talk: talk.text("Hello."),
                lambda talk: talk.socket.recv(timeout=0.02),
                lambda talk: talk.socket.recv(timeout=0.02),
                lambda talk: talk.send("end"),
                lambda talk: talk.socket.recv(timeout=0.02),
                lambda talk: talk.send("cancel"),
                lambda talk: talk.start(),
            ]
            for deed in deeds[: chance.randrange(len(deeds) + 1)]:
                with contextlib.suppress(TimeoutError):
                    deed(talk)
            if chance.random() < 0.7:
                vanish(talk)
    wait_until_gone(server)
    assert server.engine.sessions > 50
    wait_until(lambda: len(asyncio.all_tasks(server.loop)) <= tasks)
    assert len(list(Path("/proc/self/fd").iterdir())) <= files


def test_who_reads_slowly_holds_up_the_engine_and_hears_all(server: Running) -> None:
    server.behave(chunks=100, chunk_tokens=100)  # 19 megabytes
    with talking(server.url, max_queue=1) as talk:
        talk.start()
        talk.text("Hello.")
        talk.send("end")
        talk.hear("started")
        made = -1
        while made != server.engine.made or not made:
            made = server.engine.made
            time.sleep(0.3)
        assert 0 < made < 60  # the rest of the pipe is the kernel's
        reply = talk.hear()
    assert reply.audio == encode(server.engine.samples, AudioFormat.PCM)


def test_who_does_not_read_at_all_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(utterance, "LAST_EVENT_SECONDS", 0.2)
    with (
        serving(
            SineEngine(chunks=100, chunk_tokens=100), Settings(max_request_seconds=0.7)
        ) as server,
        talking(server.url, max_queue=1) as talk,
    ):
        talk.start()
        talk.text("Hello.")
        while not server.engine.open_sessions:
            time.sleep(0.001)
        wait_until_gone(server)
        wait_until(lambda: not server.sockets, "the client keeps what it can't use")


def test_who_reads_no_refusals_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "LAST_EVENT_SECONDS", 0.2)
    empty_message = b"\x81\x80" + b"\0" * 4  # masked
    with (
        serving(settings=Settings(max_idle_seconds=0.7)) as server,
        talking(server.url, max_queue=1) as talk,
    ):
        talk.socket.socket.settimeout(0.2)
        with contextlib.suppress(TimeoutError, ConnectionError):
            while True:
                talk.socket.socket.sendall(empty_message * 10_000)
        wait_until_gone(server)
        vanish(talk)
