"""An LLM server that is killed under load: its streams end with an error, later ones go on."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from cosyserve.backends.llm_server import LLMServer
from cosyserve.checkpoints.load import load_model
from cosyserve.checkpoints.parts import MODULES
from cosyserve.contracts import SpeechRequest, Voice
from cosyserve.engine.in_process import LocalEngine
from cosyserve.engine.split.lm_backends import open_llm_server
from cosyserve.errors import CosyError, LLMServerError, WorkerError
from tests.backends import token_process

STREAMS = 4


@contextmanager
def token_server(port: int, *most: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, str(Path(token_process.__file__)), str(port), *most]
    )
    try:
        for _ in range(1000):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert process.poll() is None
            time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.wait()


async def spoken(engine: LocalEngine, voice: Voice, first: asyncio.Event) -> float | CosyError:
    """-> the seconds of a stream, or the error that ended it."""
    seconds = 0.0
    try:
        async for chunk in engine.open(SpeechRequest("Some words.", voice, stream=True)):
            seconds += len(chunk.samples) / 24_000
            first.set()
    except CosyError as error:
        return error
    return seconds


def test_streams_of_a_killed_server_end_and_new_ones_go_on(voice: Voice) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    model = load_model("test", device="cpu", only=[part for part in MODULES if part != "lm"])
    server = LLMServer(f"http://127.0.0.1:{port}/v1", "lm", prompt="text")

    async def run() -> None:
        engine = LocalEngine(model, open_llm_server(server, model), slots=STREAMS)
        firsts = [asyncio.Event() for _ in range(STREAMS)]
        with token_server(port, "60") as process:
            streams = [asyncio.create_task(spoken(engine, voice, first)) for first in firsts]
            for first in firsts:
                await asyncio.wait_for(first.wait(), 60)
            process.kill()
            ends = await asyncio.wait_for(asyncio.gather(*streams), 60)
        assert all(isinstance(end, LLMServerError | WorkerError) for end in ends), ends
        # Nobody is there: an error, and soon.
        gone = await asyncio.wait_for(spoken(engine, voice, asyncio.Event()), 60)
        assert isinstance(gone, LLMServerError | WorkerError)
        with token_server(port):
            whole = await asyncio.wait_for(spoken(engine, voice, asyncio.Event()), 60)
        assert whole == pytest.approx((token_process.TOKENS - 1) / 25, abs=0.1)
        scheduler = engine._loop.scheduler
        for _ in range(500):
            if scheduler.idle:
                break
            await asyncio.sleep(0.01)
        assert scheduler.idle
        assert not scheduler.lm.rows
        await engine.close()

    asyncio.run(run())
