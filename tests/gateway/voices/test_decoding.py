"""Hostile recordings end a child process at most."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import numpy as np
import pytest

from cosyserve.audio import AudioFormat, encode
from cosyserve.contracts import Floats
from cosyserve.errors import AudioError, OverloadError
from cosyserve.gateway.voices import decoding
from cosyserve.gateway.voices.decoding import Decoder
from tests.gateway.sine_engine import sine

T = TypeVar("T")
ONE_SECOND = sine(24_000)


def with_decoder(story: Callable[[Decoder], Awaitable[T]]) -> T:
    async def run() -> T:
        decoder = Decoder()
        try:
            return await story(decoder)
        finally:
            await decoder.close()

    return asyncio.run(run())


def decode(data: bytes) -> Floats:
    return with_decoder(lambda decoder: decoder.decode(data)).samples


def children() -> set[str]:
    ours = ["pgrep", "--parent", str(os.getpid()), "--full", decoding.__name__]
    return set(subprocess.run(ours, capture_output=True, text=True, check=False).stdout.split())


def test_a_recording_comes_through_unchanged() -> None:
    audio = with_decoder(lambda decoder: decoder.decode(encode(ONE_SECOND, AudioFormat.FLAC)))
    assert audio.rate == 24_000
    assert np.abs(audio.samples - ONE_SECOND).max() < 2e-5


@pytest.mark.parametrize(
    "data",
    [
        b"",
        np.random.default_rng(0).bytes(100_000),
        b"RIFF\xff\xff\xff\xffWAVE" + np.random.default_rng(1).bytes(5000),
        b"fLaC" + np.random.default_rng(2).bytes(5000),
        encode(ONE_SECOND, AudioFormat.FLAC)[:9000],
        encode(ONE_SECOND, AudioFormat.WAV)[:9000],
        encode(np.zeros(31 * 24_000, np.float32), AudioFormat.FLAC),  # small, but long
    ],
    ids=["empty", "noise", "wav noise", "flac noise", "cut flac", "cut wav", "bomb"],
)
def test_what_is_no_recording_is_an_error_of_the_file(data: bytes) -> None:
    with pytest.raises(AudioError):
        decode(data)


def test_a_child_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "WALL_SECONDS", 0.0)
    with pytest.raises(AudioError, match="within the limits"):
        decode(encode(ONE_SECOND, AudioFormat.WAV))


def test_a_caller_that_leaves_takes_its_child_along() -> None:
    async def leave(decoder: Decoder) -> None:
        for wait in (0.0, 0.05):
            task = asyncio.create_task(decoder.decode(encode(ONE_SECOND, AudioFormat.WAV)))
            await asyncio.sleep(wait)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()

    others = children()  # of servers that other tests share
    with_decoder(leave)
    assert children() == others


def test_where_no_child_can_be_started_the_next_file_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recording = encode(ONE_SECOND, AudioFormat.WAV)

    async def story(decoder: Decoder) -> None:
        with monkeypatch.context() as full:
            full.setattr(sys, "executable", "/dev/null/python")  # any error of the system's
            decoder.prepare()
            await asyncio.sleep(0.1)
            for _ in range(2):
                with pytest.raises(OverloadError, match="no process can be started"):
                    await decoder.decode(recording)
            decoder.prepare()
            await asyncio.sleep(0.1)
        assert len((await decoder.decode(recording)).samples) == 24_000
        monkeypatch.setattr(sys, "executable", "/dev/null/python")
        decoder.prepare()

    with_decoder(story)


def test_a_child_is_ready_and_used_once() -> None:
    async def story(decoder: Decoder) -> None:
        used: set[str] = set()
        for _ in range(3):
            await decoder.decode(encode(ONE_SECOND, AudioFormat.WAV))
            await asyncio.sleep(0.1)
            (spare,) = children() - others
            assert spare not in used
            used.add(spare)
        os.kill(int(spare), signal.SIGKILL)  # a spare that died is no error of the next file
        await asyncio.sleep(0.1)
        await decoder.decode(encode(ONE_SECOND, AudioFormat.WAV))
        many = [decoder.decode(encode(ONE_SECOND, AudioFormat.WAV)) for _ in range(4)]
        assert all(len(audio.samples) for audio in await asyncio.gather(*many))

    others = children()
    with_decoder(story)
    assert children() == others


@pytest.mark.parametrize(
    "deed",
    [
        "bytearray(2 << 30)",
        "__import__('pathlib').Path('left').write_text('x')",
        "[open('/dev/null') for _ in range(99)]",
    ],
)
def test_the_child_can_do_no_harm(deed: str, tmp_path: object) -> None:
    limit = "from cosyserve.gateway.voices.decoding import _limit_this_process as limit; limit()"
    code = f"{limit}; {deed}"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=str(tmp_path))
    assert child.returncode != 0
