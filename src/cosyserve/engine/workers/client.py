"""An engine in a worker process, seen from the gateway's side. Knows no torch.

A worker that dies ends its sessions with a `WorkerError` at once and is started again, after a
pause that doubles while it keeps dying.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import Any, Literal

from cosyserve.contracts import (
    VOICE_CACHE_BYTES,
    AudioChunk,
    EngineStats,
    ModelInfo,
    Recording,
    SpeechRequest,
    Voice,
)
from cosyserve.engine.text_stream import feeding, opened
from cosyserve.engine.workers.messages import (
    Cancel,
    Chunk,
    Embed,
    Embedded,
    End,
    Failed,
    FromWorker,
    Open,
    Push,
    Ready,
    Stats,
    ToWorker,
    frame,
    from_worker,
    next_body,
)
from cosyserve.errors import CheckpointError, CosyError, WorkerError
from cosyserve.voices import file as voice_file
from cosyserve.voices.mirror import SentVoices

PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # seconds before a start, by starts that failed in a row

Role = Literal["all", "lm", "token2wav"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WorkerOptions:
    model: str
    device: str = "auto"
    dtype: str = "auto"
    threads: int = 0
    profile: str = "latency"
    slots: int = 0  # as many as the profile has
    waiting: int = 64
    max_wait: float = 1.0
    voice_cache_bytes: int = VOICE_CACHE_BYTES
    token2wav_device: str = ""  # of another process; "": one process does all

    def command(self, role: Role, fd: int, link_fd: int = -1) -> list[str]:
        device = self.token2wav_device if role == "token2wav" else self.device
        words: tuple[object, ...] = (role, fd, link_fd, self.model, device, self.dtype)
        words += (self.threads, self.profile, self.slots, self.waiting, self.max_wait)
        words += (self.voice_cache_bytes,)
        return [sys.executable, "-m", "cosyserve.engine.workers.worker", *map(str, words)]


class WorkerEngine:
    """One worker process. Implements `contracts.Engine`."""

    def __init__(self, options: WorkerOptions) -> None:
        self.options = options
        self._info: ModelInfo | None = None
        self._stats = EngineStats(ready=False, waiting=0, running=0)
        self._pending: dict[int, asyncio.Queue[AudioChunk | Exception | Voice]] = {}
        self._sent = SentVoices(options.voice_cache_bytes)
        self._numbers = itertools.count()
        self._writer: asyncio.StreamWriter | None = None
        self._processes: list[subprocess.Popen[bytes]] = []
        self._started: asyncio.Future[None] | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns when the worker is ready; a model that can't be loaded is an error."""
        self._started = asyncio.get_running_loop().create_future()
        self._keeper = asyncio.create_task(self._keep())
        await self._started

    @property
    def model(self) -> ModelInfo:
        if self._info is None:
            raise WorkerError("the worker is not ready yet")
        return self._info

    @property
    def pids(self) -> list[int]:
        """Of the worker, or of LM and token2wav."""
        return [process.pid for process in self._processes]

    def stats(self) -> EngineStats:
        return self._stats

    def open(self, request: SpeechRequest) -> AsyncGenerator[AudioChunk, None]:
        return opened(request, self._open, takes_pieces=self.model.takes_pieces)

    async def _open(self, request: SpeechRequest) -> AsyncGenerator[AudioChunk, None]:
        number, found = self._register()
        try:
            self._send_open(number, request)
            async with feeding(
                request.text,
                lambda piece: self._send(Push(number, piece)),
                lambda: self._send(End(number)),
                found.put_nowait,
            ):
                while True:
                    item = await found.get()
                    if isinstance(item, Exception):
                        raise item
                    assert isinstance(item, AudioChunk)
                    yield item
                    if item.final:
                        return
        finally:
            if self._pending.pop(number, None):
                with contextlib.suppress(WorkerError):
                    self._send(Cancel(number))

    @property
    def load(self) -> int:
        """Requests on their way; the worker may not know of the newest yet."""
        return max(self._stats.waiting + self._stats.running, len(self._pending))

    async def embed(self, recording: Recording) -> Voice:
        number, found = self._register()
        try:
            self._send(Embed.of(number, recording))
            item = await found.get()
        finally:
            self._pending.pop(number, None)
        if isinstance(item, CosyError):
            raise item
        assert isinstance(item, Voice)
        return item

    async def close(self) -> None:
        if self._keeper:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper

    def _register(self) -> tuple[int, asyncio.Queue[Any]]:
        number: int = next(self._numbers)
        found: asyncio.Queue[AudioChunk | Exception | Voice] = asyncio.Queue()
        self._pending[number] = found
        return number, found

    def _send_open(self, number: int, request: SpeechRequest) -> None:
        self._check_ready()
        self._send(Open.of(number, request, self._sent.bytes_for(request.voice)))

    def _send(self, message: ToWorker) -> None:
        self._check_ready()
        assert self._writer
        self._writer.write(frame(message))

    def _check_ready(self) -> None:
        if self._writer is None or not self._stats.ready:
            raise WorkerError("the worker is being started: try again in a moment")

    async def _keep(self) -> None:
        """Starts the worker, and again whenever it dies."""
        failures = 0
        while True:
            lived = await self._live()
            failures = 0 if lived else failures + 1
            if self._started and not self._started.done() and failures >= len(PAUSES):
                self._started.set_exception(WorkerError("the worker dies at every start"))
                return
            await asyncio.sleep(PAUSES[min(failures, len(PAUSES) - 1)])

    async def _live(self) -> bool:
        """One life of the worker. True: it was ready before it died."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._processes = self._start_processes(theirs.fileno())
        reader, self._writer = await asyncio.open_connection(sock=ours)
        try:
            while True:
                self._take(from_worker.decode(await next_body(reader)))
        except (asyncio.IncompleteReadError, ConnectionError):
            log.warning("worker %s died", ", ".join(map(str, self.pids)))
        finally:
            lived, self._stats = self._stats.ready, replace(self._stats, ready=False)
            self._writer.close()
            self._end_all(WorkerError("the worker died while it was speaking"))
            await asyncio.gather(*map(self._reap, self._processes))
        return lived

    def _start_processes(self, fd: int) -> list[subprocess.Popen[bytes]]:
        options = self.options
        if not options.token2wav_device:
            return [_start(options.command("all", fd), fd)]
        lm, token2wav = socket.socketpair()  # whichever dies, the other sees its end and follows
        with lm, token2wav:
            here, there = lm.fileno(), token2wav.fileno()
            return [
                _start(options.command("lm", fd, here), fd, here),
                _start(options.command("token2wav", there), there),
            ]

    def _take(self, message: FromWorker) -> None:
        if isinstance(message, Ready):
            voices = {
                name: voice_file.from_bytes(data, name) for name, data in message.voices.items()
            }
            about = message.name, message.family, message.fingerprint, message.speech
            self._info = ModelInfo(*about, voices, message.takes_pieces)
            self._stats = EngineStats(ready=True, waiting=0, running=0)
            self._sent = SentVoices(self.options.voice_cache_bytes)
            if self._started and not self._started.done():
                self._started.set_result(None)
        elif isinstance(message, Stats):
            self._stats = EngineStats(
                True,
                message.waiting,
                message.running,
                message.sessions,
                message.tokens,
                message.lm_seconds,
                message.token2wav_seconds,
            )
        elif isinstance(message, Failed) and message.id < 0:
            if self._started and not self._started.done():
                self._started.set_exception(CheckpointError(message.message))
        elif found := self._pending.get(message.id):
            if isinstance(message, Chunk):
                found.put_nowait(message.chunk())
            elif isinstance(message, Embedded):
                found.put_nowait(voice_file.from_bytes(message.voice, "voice"))
            else:
                found.put_nowait(message.error())

    def _end_all(self, error: WorkerError) -> None:
        for found in self._pending.values():
            found.put_nowait(error)

    @staticmethod
    async def _reap(process: subprocess.Popen[bytes]) -> None:
        process.kill()
        await asyncio.to_thread(process.wait)


def _start(command: list[str], *fds: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        pass_fds=fds,
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the gateway, which lets streams finish
    )
