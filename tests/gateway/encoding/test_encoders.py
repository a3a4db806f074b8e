"""Every listener gets the bytes of an encoder of its own, wherever it is."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import AsyncGenerator, Iterator
from typing import NoReturn

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyserve.audio import AudioFormat, Encoder, encode
from cosyserve.errors import AudioError, OverloadError, WorkerError
from cosyserve.gateway.encoding import encoders as module
from cosyserve.gateway.encoding.encoders import CROWDED, SLICE, Encoders, InlineEncoder
from tests.gateway.encoding.sound import SECOND, comparable

SOUND = np.tile(SECOND, 3)


@pytest.fixture(scope="module")
def encoders() -> Iterator[Encoders]:
    encoders = Encoders(most_processes=2)
    yield encoders
    encoders.close()


async def encoded(
    encoders: Encoders, kind: AudioFormat, rate: int | None, lengths: list[int]
) -> bytes:
    encoder = encoders.of(kind, rate)
    with encoder:
        parts = np.split(SOUND[: sum(lengths)], np.cumsum(lengths)[:-1])
        return b"".join([await encoder.push(part) for part in parts]) + await encoder.finish()


def in_slices(kind: AudioFormat, rate: int | None, lengths: list[int]) -> bytes:
    encoder, data = Encoder(kind, out_rate=rate), b""
    for part in np.split(SOUND[: sum(lengths)], np.cumsum(lengths)[:-1]):
        for piece in np.split(part, range(SLICE, len(part), SLICE)):
            data += encoder.push(piece)
    return data + encoder.finish()


@pytest.mark.parametrize("kind", AudioFormat)
@settings(max_examples=5)
@given(
    lengths=st.lists(st.integers(480, 30_000), min_size=1, max_size=2),
    rate=st.sampled_from([None, 16_000]),
)
def test_bytes_are_those_of_an_encoder_here(
    encoders: Encoders, kind: AudioFormat, lengths: list[int], rate: int | None
) -> None:
    found = asyncio.run(encoded(encoders, kind, rate, lengths))
    assert comparable(kind, found) == comparable(kind, in_slices(kind, rate, lengths))


def test_only_codecs_and_resamplers_are_elsewhere(encoders: Encoders) -> None:
    here = {kind for kind in AudioFormat if isinstance(encoders.of(kind), InlineEncoder)}
    assert here == {AudioFormat.WAV, AudioFormat.PCM, AudioFormat.F32}
    assert not isinstance(encoders.of(AudioFormat.PCM, 16_000), InlineEncoder)


def test_a_rate_that_a_format_lacks_is_refused_at_once(encoders: Encoders) -> None:
    with pytest.raises(AudioError, match="can't be 44000 Hz"):
        encoders.of(AudioFormat.OPUS, 44_000)


def test_an_encoder_is_a_new_one_each_time(encoders: Encoders) -> None:
    async def twice() -> list[bytes]:
        encoder, heard = encoders.of(AudioFormat.MP3), []
        for _ in range(2):
            with encoder:
                heard.append(await encoder.push(SOUND[:SLICE]) + await encoder.finish())
        return heard

    first, second = asyncio.run(twice())
    assert first == second == encode(SOUND[:SLICE], AudioFormat.MP3)


async def crowd(encoders: Encoders) -> AsyncGenerator[int, None]:
    """Listeners who come and don't leave; the number of processes."""
    held = [encoders.of(AudioFormat.OPUS) for _ in range(3 * CROWDED)]
    try:
        for encoder in held:
            encoder.__enter__()
            await encoder.push(SOUND[:480])
            yield len(encoders.processes)
    finally:
        for encoder in held:
            encoder.__exit__()


def test_a_crowd_has_more_processes_but_no_more_than_allowed() -> None:
    encoders = Encoders(most_processes=2)

    async def counts() -> list[int]:
        return [count async for count in crowd(encoders)]

    try:
        found = asyncio.run(counts())
        assert found[:CROWDED] == [1] * CROWDED
        assert found[CROWDED:] == [2] * 2 * CROWDED
    finally:
        encoders.close()


def test_processes_that_nobody_needs_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    encoders = Encoders(most_processes=2)

    async def come_and_leave() -> list[int]:
        return [count async for count in crowd(encoders)]

    try:
        asyncio.run(come_and_leave())
        first, second = encoders.processes
        encoders.prepare()
        assert encoders.processes == [first, second]
        monkeypatch.setattr(module, "IDLE_SECONDS", 0.0)
        encoders.prepare()
        assert encoders.processes == [first]
        assert not second.alive
    finally:
        encoders.close()


def test_no_file_is_left_for_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    encoders = Encoders(most_processes=2)

    def none_left() -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")

    async def counts() -> list[int]:
        return [count async for count in crowd(encoders)]

    with monkeypatch.context() as patched:
        patched.setattr(module, "EncoderProcess", none_left)
        with pytest.raises(OverloadError, match="to encode the speech: Too many open files"):
            encoders.prepare()
    encoders.prepare()
    try:
        monkeypatch.setattr(module, "EncoderProcess", none_left)
        assert asyncio.run(counts()) == [1] * 3 * CROWDED
    finally:
        encoders.close()


def test_whoever_has_heard_nothing_does_not_notice_a_death() -> None:
    encoders = Encoders(most_processes=1)

    async def scene() -> bytes:
        encoder = encoders.of(AudioFormat.AAC)
        with encoder:
            os.kill(encoders.processes[0].pid, signal.SIGKILL)
            return await encoder.push(SOUND[:SLICE]) + await encoder.finish()

    try:
        assert asyncio.run(scene()) == encode(SOUND[:SLICE], AudioFormat.AAC)
    finally:
        encoders.close()


def test_whoever_comes_after_a_death_is_served() -> None:
    encoders = Encoders(most_processes=1)

    async def scene() -> bytes:
        encoder = encoders.of(AudioFormat.AAC)
        with encoder:
            await encoder.push(SOUND)
            os.kill(encoders.processes[0].pid, signal.SIGKILL)
            with pytest.raises(WorkerError):
                await encoder.push(SOUND)
        return await encoded(encoders, AudioFormat.AAC, None, [SLICE])

    try:
        assert asyncio.run(scene()) == encode(SOUND[:SLICE], AudioFormat.AAC)
    finally:
        encoders.close()


def test_a_listener_who_leaves_meanwhile_disturbs_nobody() -> None:
    encoders = Encoders(most_processes=1)

    async def scene() -> bytes:
        leaving, staying = encoders.of(AudioFormat.MP3), encoders.of(AudioFormat.MP3)
        with staying:
            with leaving:
                await leaving.push(SOUND)
                os.kill(encoders.processes[0].pid, signal.SIGSTOP)
                pushing = asyncio.create_task(staying.push(SOUND))
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(leaving.push(-SOUND), 0.1)
                assert await encoded(encoders, AudioFormat.PCM, None, [10])  # here all goes on
            os.kill(encoders.processes[0].pid, signal.SIGCONT)
            return await pushing + await staying.finish()

    try:
        assert asyncio.run(scene()) == in_slices(AudioFormat.MP3, None, [len(SOUND)])
    finally:
        encoders.close()
