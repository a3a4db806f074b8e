"""The role `lm` of a worker process: the speech LM here, a token2wav at the end of a link.

Speaks with the gateway as a worker of role `all` does. When either link closes, the worker ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from cosyserve.checkpoints.model import Model
from cosyserve.contracts import Voice
from cosyserve.engine.compute.errors import client_error
from cosyserve.engine.scheduling.admission import Admission
from cosyserve.engine.split.lm_service import LMService
from cosyserve.engine.split.pipeline import SplitEngine
from cosyserve.engine.workers.messages import (
    Cancel,
    Chunk,
    Embed,
    Failed,
    FromWorker,
    Open,
    Stats,
    ToWorker,
    frame,
    next_body,
    to_worker,
)
from cosyserve.engine.workers.replies import embedded, ready
from cosyserve.engine.workers.token2wav_link import LinkedToken2Wav
from cosyserve.errors import CheckpointError, CosyError
from cosyserve.text.number_process import NumberProcess
from cosyserve.voices.mirror import ReceivedVoices
from cosyserve.voices.shipped import describe

STATS_EVERY = 0.1  # seconds


class LMWorker:
    def __init__(
        self, model: Model, slots: int, waiting: int, max_wait: float, cache_bytes: int
    ) -> None:
        self.model, self.slots, self.limit = model, slots, slots + waiting
        self._max_wait, self._pace = max_wait, Admission()
        self._cache_bytes = cache_bytes
        self._voices = ReceivedVoices(cache_bytes)
        self._speaking: dict[int, asyncio.Task[None]] = {}
        self._enrolling = ThreadPoolExecutor(1, "enroll")
        self._opened = self._tokens = 0
        self._reported = 0.0

    async def run(self, gateway: socket.socket, token2wav: socket.socket) -> None:
        """Until either end closes."""
        reader, self._writer = await asyncio.open_connection(sock=gateway)
        voiced = await asyncio.open_connection(sock=token2wav)
        link = LinkedToken2Wav(*voiced, self._cache_bytes, reader.feed_eof)
        try:
            if await link.start() != self.model.config.fingerprint:
                raise CheckpointError("LM and token2wav workers have loaded different models")
        except CosyError as error:
            self._send(Failed.of(-1, error))
            return
        lm, _ = self.model.need_lm()
        # The sessions are counted here; of each, one utterance at a time asks the LM.
        alone = LMService(lm, slots=self.slots, waiting=self.limit)
        self._engine = SplitEngine(self.model, alone, link, NumberProcess())
        self._send(ready(replace(describe(self.model), takes_pieces=False)))
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                self._take(to_worker.decode(await next_body(reader)))

    def _take(self, message: ToWorker) -> None:
        if isinstance(message, Embed):
            self._enrolling.submit(self._embed, message, asyncio.get_running_loop())
        elif isinstance(message, Open):
            self._open(message)
        elif isinstance(message, Cancel) and message.id in self._speaking:
            self._speaking[message.id].cancel()

    def _open(self, message: Open) -> None:
        try:
            voice = self._voices.take(message.voice_key, message.voice)
            ahead = max(0, len(self._speaking) - self.slots)
            full = len(self._speaking) >= self.limit
            self._pace.check(ahead, full=full, max_wait=self._max_wait)
        except CosyError as error:
            self._send(Failed.of(message.id, error))
            return
        self._opened += 1
        task = asyncio.create_task(self._speak(message, voice))
        self._speaking[message.id] = task
        task.add_done_callback(lambda _: self._over(message.id))
        self._report()

    async def _speak(self, message: Open, voice: Voice) -> None:
        try:
            async with contextlib.aclosing(self._engine.open(message.request(voice))) as chunks:
                async for chunk in chunks:
                    self._tokens += chunk.tokens
                    self._send(Chunk.of(message.id, chunk))
                    self._report()
        except Exception as error:
            self._send(Failed.of(message.id, client_error(error)))

    def _over(self, number: int) -> None:
        del self._speaking[number]
        self._pace.ended(time.monotonic(), max(0, len(self._speaking) - self.slots))
        self._report()

    def _embed(self, message: Embed, loop: asyncio.AbstractEventLoop) -> None:
        answer = embedded(self.model, message)
        loop.call_soon_threadsafe(self._send, answer)

    def _report(self) -> None:
        """Counts, not too often; at rest always the last ones."""
        now, count = time.monotonic(), len(self._speaking)
        if count and now - self._reported < STATS_EVERY:
            return
        self._reported = now
        running = min(count, self.slots)
        self._send(Stats(count - running, running, self._opened, self._tokens, 0.0, 0.0))

    def _send(self, message: FromWorker) -> None:
        self._writer.write(frame(message))
