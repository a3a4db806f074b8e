"""A real HTTP server on a free port of this machine whose answers are written by the test."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from cosyserve.contracts import SAMPLE_RATE


@dataclass(frozen=True)
class Piece:
    after: float  # seconds of waiting before it is sent
    seconds: float  # of audio


@dataclass(frozen=True)
class Script:
    pieces: tuple[Piece, ...] = (Piece(0.0, 0.5),)
    status: int = 200
    cut: bool = False  # end the connection where the end of the answer should be
    hang: bool = False  # say nothing more where the end of the answer should be


@dataclass
class ScriptedServer:
    script: Script = Script()
    port: int = 0
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)
    came: list[float] = field(default_factory=list)
    inside: int = 0
    most_inside: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._answer(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has left
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """False when the connection is to be ended."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        if head.startswith("get"):
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return True
        length = int(head.split("content-length: ")[1].split("\r\n")[0])
        self.came.append(time.perf_counter())
        self.bodies.append(json.loads(await reader.readexactly(length)))
        self.headers.append(head)
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        try:
            return await self._follow_script(writer)
        finally:
            self.inside -= 1

    async def _follow_script(self, writer: asyncio.StreamWriter) -> bool:
        script = self.script
        if script.status != 200:
            body = json.dumps({"error": {"message": "the queue is full"}}).encode()
            head = f"HTTP/1.1 {script.status} No\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            return True
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in script.pieces:
            await asyncio.sleep(piece.after)
            data = b"\x01\x02" * round(piece.seconds * SAMPLE_RATE)
            writer.write(b"%x\r\n%b\r\n" % (len(data), data))
            await writer.drain()
        if script.hang:
            await asyncio.sleep(10)
        if script.cut or script.hang:
            return False
        writer.write(b"0\r\n\r\n")
        return True


@contextmanager
def scripted_server() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    loop = asyncio.new_event_loop()
    started = threading.Event()
    stop = asyncio.Event()

    async def run() -> None:
        listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        server.port = listener.sockets[0].getsockname()[1]
        started.set()
        await stop.wait()
        listener.close()

    def thread() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(run())

    running = threading.Thread(target=thread)
    running.start()
    started.wait()
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        running.join()
