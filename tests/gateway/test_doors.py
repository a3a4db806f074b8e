"""Ports besides that of the HTTP API: opened, made known, and closed in good order."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from pathlib import Path

import grpc
import httpx
import pytest
from wyoming.audio import AudioChunk, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.tts import Synthesize

from cosyserve.cli import EXTRAS
from cosyserve.errors import InputError
from cosyserve.gateway.doors import Doors
from cosyserve.gateway.limits import Limits
from cosyserve.gateway.serve import serve
from cosyserve.settings import Settings
from cosyserve.voices.store import open_store
from tests.gateway.original.test_grpc_server import METHOD, SFT, audio_of
from tests.gateway.sine_engine import SineEngine

PROGRAM = """
import uvloop
from cosyserve.gateway.doors import Doors
from cosyserve.gateway.limits import Limits
from cosyserve.gateway.serve import serve
from cosyserve.settings import Settings
from cosyserve.voices.store import open_store
from tests.gateway.sine_engine import SineEngine

engine, settings = SineEngine(chunks=5, delay=0.2), Settings()
limits, doors = Limits.of(settings), Doors.of(settings)
uvloop.run(serve(engine, open_store("none"), "127.0.0.1", 0, limits, doors=doors))
print("closed" if engine.closed else "left open", engine.open_sessions)
"""
WHOLE = 5 * 10 * 960 * 2  # bytes


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


async def synthesized(port: int, ask_to_end: subprocess.Popen[str]) -> int:
    """The bytes of audio that come though the server is asked to end after the first."""
    size = 0
    async with asyncio.timeout(30), AsyncTcpClient("127.0.0.1", port) as client:
        await client.write_event(Synthesize("Hello.").event())
        while event := await client.read_event():
            if AudioChunk.is_type(event.type):
                if not size:
                    ask_to_end.send_signal(signal.SIGTERM)
                size += len(AudioChunk.from_event(event).audio)
            if AudioStop.is_type(event.type):
                return size
    return 0


def test_all_doors_of_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    wyoming, legacy, legacy_grpc = free_ports(3)
    monkeypatch.setenv("COSYSERVE_WYOMING_PORT", str(wyoming))
    monkeypatch.setenv("COSYSERVE_LEGACY_PORT", str(legacy))
    monkeypatch.setenv("COSYSERVE_LEGACY_GRPC_PORT", str(legacy_grpc))
    command = [sys.executable, "-c", PROGRAM]
    folder = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as child:
        assert child.stdout
        lines = [child.stdout.readline().removeprefix("listening on ").strip() for _ in range(4)]
        assert lines[0].startswith("http://127.0.0.1:")
        assert lines[1:] == [
            f"http://127.0.0.1:{legacy}",
            f"tcp://127.0.0.1:{wyoming} (Wyoming)",
            f"127.0.0.1:{legacy_grpc} (gRPC)",
        ]
        form = {"tts_text": "Hello.", "spk_id": "default"}
        spoken = httpx.post(f"http://127.0.0.1:{legacy}/inference_sft", data=form, timeout=30)
        assert len(spoken.content) == WHOLE
        with grpc.insecure_channel(f"127.0.0.1:{legacy_grpc}") as channel:
            call = channel.unary_stream(METHOD)(SFT, timeout=30)
            assert sum(len(audio_of(response)) for response in call) == WHOLE
        assert asyncio.run(synthesized(wyoming, child)) == WHOLE
        assert child.wait(20) == 0
        assert child.stdout.read() == "closed 0\n"


@pytest.mark.parametrize("door", ["wyoming", "legacy", "legacy_grpc"])
def test_a_port_that_is_taken_is_one_clear_error(tmp_path: Path, door: str) -> None:
    engine = SineEngine()
    with socket.create_server(("127.0.0.1", 0)) as other:
        doors = Doors(**{door: other.getsockname()[1]})
        store, limits = open_store(str(tmp_path)), Limits.of(Settings())
        with pytest.raises(InputError, match=f"can't listen.*--{door.replace('_', '-')}"):
            asyncio.run(serve(engine, store, "127.0.0.1", 0, limits, doors=doors))
    assert engine.closed


@pytest.mark.parametrize(("door", "package"), [("wyoming", "wyoming"), ("legacy_grpc", "grpc")])
def test_a_missing_package_is_named_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, door: str, package: str
) -> None:
    for name in list(sys.modules):
        if name.startswith((package, "cosyserve.gateway.wyoming", "cosyserve.gateway.original")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    Doors().import_rooms()
    with pytest.raises(ModuleNotFoundError) as missing:
        Doors(**{door: 1}).import_rooms()
    assert (missing.value.name or "").partition(".")[0] == package
    assert EXTRAS[package] in ("wyoming", "triton")
