"""A process that encodes says what encoders here say, and ends with those who ask it."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.servers import Process
from cosyserve.audio import AudioFormat, Encoder
from cosyserve.contracts import Floats
from cosyserve.engine.workers.messages import frame
from cosyserve.errors import AudioError, WorkerError
from cosyserve.gateway.encoding import process as module
from cosyserve.gateway.encoding.messages import (
    DropEncoder,
    Encode,
    Encoded,
    EncoderFailed,
    FinishEncoder,
    FromEncoder,
    NotEncoded,
    OpenEncoder,
    ToEncoder,
)
from cosyserve.gateway.encoding.process import EncoderProcess, serve_encoders
from tests.gateway.encoding.sound import SECOND, comparable

CODED = (AudioFormat.MP3, AudioFormat.OPUS, AudioFormat.AAC, AudioFormat.FLAC)
GATEWAY = """
import time
from cosyserve.gateway.encoding.process import EncoderProcess
process = EncoderProcess()
print(process.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module")
def process() -> Iterator[EncoderProcess]:
    process = EncoderProcess()
    yield process
    process.close()


def answers(*messages: ToEncoder) -> list[FromEncoder]:
    return list(serve_encoders(io.BytesIO(b"".join(map(frame, messages)))))


def joined(found: list[FromEncoder]) -> bytes:
    assert all(isinstance(answer, Encoded) for answer in found)
    return b"".join(answer.data for answer in found if isinstance(answer, Encoded))


@settings(max_examples=20)
@given(
    order=st.permutations([0, 0, 0, 1, 1, 2, 2, 2]),
    kinds=st.tuples(*[st.sampled_from(CODED)] * 3),
)
def test_streams_do_not_mix(order: list[int], kinds: tuple[AudioFormat, ...]) -> None:
    sounds = [SECOND * (1 + id) / 3 for id in range(3)]
    messages: list[ToEncoder] = [OpenEncoder(id, kind, 24_000) for id, kind in enumerate(kinds)]
    messages += [Encode(id, sounds[id]) for id in order]
    messages += [FinishEncoder(id) for id in range(3)]
    found = answers(*messages)
    for id, kind in enumerate(kinds):
        own = [answer for answer, message in zip(found, messages, strict=True) if message.id == id]
        expected = whole(kind, [sounds[id]] * order.count(id))
        assert comparable(kind, joined(own)) == comparable(kind, expected)


def whole(kind: AudioFormat, pushes: list[Floats]) -> bytes:
    encoder = Encoder(kind)
    return b"".join(encoder.push(samples) for samples in pushes) + encoder.finish()


@pytest.mark.unit
def test_a_wrong_chunk_is_an_answer_and_hurts_nobody_else() -> None:
    mp3 = AudioFormat.MP3
    first, second, wrong, right = answers(
        *(OpenEncoder(0, mp3, 24_000), OpenEncoder(1, mp3, 24_000)),
        *(Encode(0, np.full(9, np.nan, np.float32)), Encode(1, SECOND)),
    )
    assert first == second == Encoded(b"")
    assert wrong == NotEncoded("samples must be finite numbers, found nan or inf")
    assert right == Encoded(Encoder(mp3).push(SECOND))


@pytest.mark.unit
def test_one_that_is_dropped_is_gone_and_may_be_dropped_again() -> None:
    opened = OpenEncoder(0, AudioFormat.FLAC, 24_000)
    asked = (opened, DropEncoder(0), DropEncoder(0), Encode(0, SECOND))
    assert answers(*asked) == [Encoded(b""), EncoderFailed()]


@pytest.mark.unit
def test_a_message_that_is_cut_off_is_the_end() -> None:
    cut = frame(OpenEncoder(0, AudioFormat.MP3, 24_000)) + frame(Encode(0, SECOND))[:-1]
    assert list(serve_encoders(io.BytesIO(cut))) == [Encoded(b"")]


@pytest.mark.parametrize("kind", CODED)
def test_it_encodes_as_we_do(process: EncoderProcess, kind: AudioFormat) -> None:
    asked = [
        process.open(1, kind, 24_000),
        process.ask(Encode(1, SECOND)),
        process.ask(FinishEncoder(1)),
    ]
    data = b"".join(answer.result(20) for answer in asked)
    assert comparable(kind, data) == comparable(kind, whole(kind, [SECOND]))
    assert process.encoders == 1
    process.drop(1)
    assert process.encoders == 0


def test_a_wrong_chunk_is_an_error_of_the_audio(process: EncoderProcess) -> None:
    process.open(2, AudioFormat.OPUS, 24_000)
    with pytest.raises(AudioError, match="finite"):
        process.ask(Encode(2, np.full(9, np.inf, np.float32))).result(20)
    process.drop(2)


def test_encoders_that_are_over_leave_no_memory_behind(process: EncoderProcess) -> None:
    ids = range(10, 26)
    process.open(9, AudioFormat.FLAC, 24_000).result(20)
    before = Process(process.pid).own_bytes
    for id in ids:
        process.open(id, AudioFormat.FLAC, 24_000)
    for pushed in [process.ask(Encode(id, SECOND)) for id in ids]:
        pushed.result(20)
    assert Process(process.pid).own_bytes - before > 80_000_000
    for id in ids:
        process.drop(id)
    process.ask(Encode(9, SECOND)).result(20)  # by then the others are dropped
    assert Process(process.pid).own_bytes - before < 8_000_000
    process.drop(9)


def test_its_death_is_told_to_whoever_waits_and_whoever_comes() -> None:
    process = EncoderProcess()
    process.open(0, AudioFormat.MP3, 24_000).result(20)
    os.kill(process.pid, signal.SIGSTOP)
    waiting = process.ask(Encode(0, SECOND))
    os.kill(process.pid, signal.SIGKILL)
    for asked in (waiting, process.ask(FinishEncoder(0))):
        with pytest.raises(WorkerError, match="died: ask for it again"):
            asked.result(20)
    assert not process.alive
    process.drop(0)
    process.close()


def test_what_nobody_foresaw_hurts_one_listener(process: EncoderProcess) -> None:
    process.open(3, AudioFormat.AAC, 24_000)
    process.drop(3)
    process.open(4, AudioFormat.AAC, 24_000)
    with pytest.raises(WorkerError, match="has failed: ask for it again"):
        process.ask(Encode(3, SECOND)).result(20)
    assert process.ask(Encode(4, SECOND)).result(20)
    process.drop(4)


@pytest.mark.parametrize("asked", [1, 400], ids=["an answer", "room for a question"])
def test_one_that_hangs_is_ended(asked: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HANGS_SECONDS", 2.0)
    process = EncoderProcess()
    process.open(0, AudioFormat.FLAC, 24_000).result(20)
    os.kill(process.pid, signal.SIGSTOP)
    for waiting in [process.ask(Encode(0, np.tile(SECOND, asked))), process.ask(FinishEncoder(0))]:
        with pytest.raises(WorkerError, match="died: ask for it again"):
            waiting.result(20)
    assert not process.alive
    assert not Path(f"/proc/{process.pid}").exists()
    process.close()


def test_it_ends_with_a_gateway_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", GATEWAY], stdout=subprocess.PIPE) as gateway:
        assert gateway.stdout
        stat = Path(f"/proc/{int(gateway.stdout.readline())}/stat")
        assert stat.exists()
        gateway.kill()
    until = time.monotonic() + 20
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < until, "it outlives its gateway"
        time.sleep(0.05)
