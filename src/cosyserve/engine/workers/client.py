"""An engine in a worker process, seen from the gateway's side. It imports no torch.

A worker that dies ends its sessions with a `WorkerError` at once and is started again, after a
pause that doubles while it keeps dying. One that falls silent once it was ready has died, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import msgspec

from cosyserve.contracts import (
    AudioChunk,
    EngineStats,
    ModelInfo,
    Recording,
    SpeechRequest,
    Voice,
)
from cosyserve.engine.text_stream import feeding, opened
from cosyserve.engine.workers.messages import (
    Alive,
    Cancel,
    Chunk,
    Embedded,
    EmbedRequest,
    End,
    Forget,
    FromWorker,
    NotStarted,
    Open,
    Push,
    Ready,
    Stats,
    ToWorker,
    frame,
    from_worker,
    next_body,
)
from cosyserve.engine.workers.options import WorkerOptions
from cosyserve.engine.workers.replies import Replies
from cosyserve.errors import CheckpointError, WorkerError
from cosyserve.voices.memory.mirror import SentVoices

READ_AHEAD = 1 << 20  # bytes: half of ten seconds of speech
LOOK_SECONDS, LOOKS = 5.0, 6  # that find no word of a worker in a row: it hangs
FORGET_SECONDS = 60.0  # between two looks for voices that nobody uses
PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # seconds before a start, by starts that failed in a row

log = logging.getLogger(__name__)


class WorkerEngine:
    """One worker process. Implements `contracts.Engine`."""

    def __init__(self, options: WorkerOptions) -> None:
        self.options = options
        self._info: ModelInfo | None = None
        self._stats = EngineStats(ready=False, waiting=0, running=0)
        self._past = self._stats  # totals of earlier lives
        self._replies: dict[int, Replies] = {}
        self._sent = SentVoices(options.voice_cache_bytes)
        self._ids = itertools.count()
        self._looks = 0  # since the worker's last word
        self._writer: asyncio.StreamWriter | None = None
        self._process: subprocess.Popen[bytes] | None = None
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
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    def stats(self) -> EngineStats:
        return self._past + self._stats

    def open(self, request: SpeechRequest) -> AsyncGenerator[AudioChunk, None]:
        return opened(request, self._open, takes_pieces=self.model.takes_pieces)

    async def _open(self, request: SpeechRequest) -> AsyncGenerator[AudioChunk, None]:
        with self._request() as (id, replies):
            self._check_ready()
            self._send(Open.of(id, request, self._sent.bytes_for(request.voice)))
            try:
                async with feeding(
                    request.text,
                    lambda piece: self._send(Push(id, piece)),
                    lambda: self._send(End(id)),
                    replies.put,
                ):
                    while True:
                        reply = await replies.get()
                        if isinstance(reply, Exception):
                            raise reply
                        assert isinstance(reply, AudioChunk)
                        yield reply
                        if reply.final:
                            return
            finally:
                self._cancel(id)

    @property
    def ready(self) -> bool:
        return self._stats.ready

    @property
    def load(self) -> int:
        """Requests inside; the worker may not know of the newest yet."""
        return max(self._stats.waiting + self._stats.running, len(self._replies))

    async def embed(self, recording: Recording) -> Voice:
        with self._request() as (id, replies):
            self._send(EmbedRequest(id, recording))
            try:
                reply = await replies.get()
            finally:
                self._cancel(id)
        if isinstance(reply, Exception):
            raise reply
        assert isinstance(reply, Voice)
        return reply

    async def close(self) -> None:
        if self._keeper:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper

    @contextlib.contextmanager
    def _request(self) -> Iterator[tuple[int, Replies]]:
        """The id of a new request, and where its replies arrive."""
        id, replies = next(self._ids), Replies(self.options.max_unread_bytes)
        self._replies[id] = replies
        try:
            yield id, replies
        finally:
            del self._replies[id]

    def _send(self, message: ToWorker) -> None:
        self._check_ready()
        assert self._writer
        self._writer.write(frame(message))

    def _cancel(self, id: int) -> None:
        with contextlib.suppress(WorkerError):
            self._send(Cancel(id))

    def _check_ready(self) -> None:
        if self._writer is None or not self.ready:
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
        lived = False
        try:
            async with self.connected() as (reader, self._writer):
                forgetting = asyncio.create_task(self._forget())
                watching = asyncio.create_task(self._watch(reader))
                try:
                    while True:
                        body = await next_body(reader)
                        self._looks = 0
                        self._take(from_worker.decode(body))
                finally:  # those who listen are told before the worker is cleared away
                    forgetting.cancel()
                    watching.cancel()
                    lived = self.ready
                    self._past = replace(self.stats().totals, restarts=self._past.restarts + 1)
                    self._stats = EngineStats(ready=False, waiting=0, running=0)
                    for replies in self._replies.values():
                        replies.put(WorkerError("the worker died while it was speaking"))
        except asyncio.IncompleteReadError:
            log.warning("%s died", self.name)
        except WorkerError as error:  # it may be of another version
            log.error("%s is not understood: %s", self.name, error)
        except OSError as error:  # a node that fell silent is a timeout, no ConnectionError
            log.warning("%s died: %s", self.name, error)
        except Exception:  # else it would never be started again
            log.exception("%s is given up", self.name)
        return lived

    async def _watch(self, reader: asyncio.StreamReader) -> None:
        """Looks are counted, not seconds: a gateway that stood still itself has not looked, and
        reads what came meanwhile before it looks again."""
        self._looks = 0
        while self._looks < LOOKS:
            await asyncio.sleep(LOOK_SECONDS)
            self._looks += self.ready  # to load a model may take minutes
        reader.set_exception(TimeoutError(f"no sign of life for {LOOKS * LOOK_SECONDS:g} s"))

    async def _forget(self) -> None:
        """Voices that were removed are among those that nobody uses any more."""
        while True:
            await asyncio.sleep(FORGET_SECONDS)
            if self.ready:
                for key in self._sent.forget_idle():
                    self._send(Forget(key))

    @property
    def name(self) -> str:
        return f"worker {self._process.pid}" if self._process else "a worker"

    @asynccontextmanager
    async def connected(
        self,
    ) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter], None]:
        """A worker is started and, at the end, killed; what it says and hears."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = process = self._start_process(theirs.fileno())
        reader, writer = await asyncio.open_connection(sock=ours, limit=READ_AHEAD)
        try:
            yield reader, writer
        finally:
            writer.close()
            process.kill()
            await asyncio.to_thread(process.wait)

    def command(self, fd: int) -> list[str]:
        """What starts a worker at the far end of a socket."""
        return [sys.executable, "-m", "cosyserve.engine.workers.worker", str(fd)]

    def _start_process(self, fd: int) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self.command(fd),
            pass_fds=(fd,),
            stdin=subprocess.PIPE,
            # numpy reads words there; its threads would wait for cores that torch's have.
            env={"OPENBLAS_NUM_THREADS": "1"} | os.environ,
            start_new_session=True,  # Ctrl-C is for the gateway, which lets streams finish
        )
        assert process.stdin
        # A command line can be read by others, and there may be a key among the options.
        with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
            stdin.write(msgspec.json.encode(self.options))
        return process

    def _take(self, message: FromWorker) -> None:
        if isinstance(message, Ready):
            self._info = message.model
            self._stats = message.stats
            self._sent = SentVoices(self.options.voice_cache_bytes)
            if self._started and not self._started.done():
                self._started.set_result(None)
        elif isinstance(message, Stats):
            self._stats = message.stats
        elif isinstance(message, NotStarted):
            if self._started and not self._started.done():
                self._started.set_exception(CheckpointError(message.message))
            else:
                log.error("%s can't be started again: %s", self.name, message.message)
        elif isinstance(message, Alive):
            pass
        elif replies := self._replies.get(message.id):
            if isinstance(message, Chunk):
                replies.put(message.chunk)
                if replies.given_up:
                    self._cancel(message.id)
            elif isinstance(message, Embedded):
                replies.put(message.voice)
            else:
                replies.put(message.error)
