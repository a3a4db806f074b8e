"""A worker process: a model and its loop, behind one socket.

    python -m cosyserve.engine.workers.worker ROLE FD LINK_FD MODEL DEVICE DTYPE THREADS \
        PROFILE SLOTS WAITING MAX_WAIT VOICE_CACHE_BYTES

A worker of role `lm` also has a link to one of role `token2wav`. Knows no client. When the other
end of the socket closes, the worker ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from cosyserve.checkpoints.load import load_model
from cosyserve.checkpoints.model import Model
from cosyserve.contracts import AudioChunk
from cosyserve.engine.compute.profile import Profile, profile
from cosyserve.engine.scheduling.intake import Intake, Ticket
from cosyserve.engine.scheduling.loop import Loop
from cosyserve.engine.scheduling.scheduler import Scheduler
from cosyserve.engine.workers.lm_worker import LMWorker
from cosyserve.engine.workers.messages import (
    LENGTH,
    Chunk,
    Embed,
    End,
    Failed,
    FromWorker,
    Open,
    Push,
    Stats,
    ToWorker,
    frame,
    to_worker,
)
from cosyserve.engine.workers.replies import embedded, ready
from cosyserve.engine.workers.token2wav_worker import Token2WavWorker
from cosyserve.errors import CosyError
from cosyserve.text.number_process import NumberProcess
from cosyserve.voices.mirror import ReceivedVoices
from cosyserve.voices.shipped import describe

STATS_EVERY = 0.1  # seconds


class Worker:
    def __init__(
        self,
        link: socket.socket,
        model: Model,
        profile: Profile,
        slots: int,
        waiting: int,
        max_wait: float,
        cache_bytes: int,
    ) -> None:
        self.link, self.model = link, model
        self._sending = threading.Lock()
        self._tickets: dict[int, Ticket] = {}
        self._voices = ReceivedVoices(cache_bytes)
        self._scheduler = Scheduler.of(
            model, slots=slots, waiting=waiting, max_wait=max_wait, profile=profile
        )
        self._scheduler.warm_up()
        self._loop = Loop(self._scheduler, self._report)
        self._intake = Intake(self._loop, model.need_lm()[1], NumberProcess())
        self._reported = (0.0, self._scheduler.stats())
        self._enrolling = ThreadPoolExecutor(1, "enroll")

    def run(self) -> None:
        self._send(ready(describe(self.model)))
        threading.Thread(target=self._listen, name="listen", daemon=True).start()
        self._loop.run()

    def _listen(self) -> None:
        try:
            with self.link.makefile("rb") as stream:
                while head := stream.read(LENGTH.size):
                    (length,) = LENGTH.unpack(head)
                    self._take(to_worker.decode(stream.read(length)))
        finally:
            self._loop.stop()

    def _take(self, message: ToWorker) -> None:
        if isinstance(message, Embed):
            self._enrolling.submit(self._embed, message)
        elif isinstance(message, Open):
            self._open(message)
        elif ticket := self._tickets.get(message.id):
            if isinstance(message, Push):
                ticket.push(message.text)
            elif isinstance(message, End):
                ticket.end()
            else:
                del self._tickets[message.id]
                ticket.cancel()

    def _open(self, message: Open) -> None:
        def sink(item: AudioChunk | CosyError) -> None:
            if isinstance(item, CosyError) or item.final:
                self._tickets.pop(message.id, None)
            told = Failed if isinstance(item, CosyError) else Chunk
            self._send(told.of(message.id, item))  # type: ignore[arg-type]

        try:
            request = message.request(self._voices.take(message.voice_key, message.voice))
        except CosyError as error:
            self._send(Failed.of(message.id, error))
            return
        ticket = self._tickets[message.id] = Ticket(self._intake, request, sink)
        ticket.open()

    def _embed(self, message: Embed) -> None:
        self._send(embedded(self.model, message))

    def _report(self) -> None:
        """Counts, when they changed and not too often; at rest always the last ones."""
        when, before = self._reported
        now, stats = time.monotonic(), self._scheduler.stats()
        at_rest = not (stats.running or stats.waiting)
        if stats != before and (at_rest or now - when >= STATS_EVERY):
            self._reported = now, stats
            self._send(
                Stats(
                    stats.waiting,
                    stats.running,
                    stats.sessions,
                    stats.tokens,
                    stats.lm_seconds,
                    stats.token2wav_seconds,
                )
            )

    def _send(self, message: FromWorker) -> None:
        try:
            with self._sending:
                self.link.sendall(frame(message))
        except OSError:  # the gateway is gone: the listener ends us
            self._loop.stop()


def _role(
    role: str,
    link: socket.socket,
    model: Model,
    profile: Profile,
    slots: int,
    limits: tuple[int, float, int],
    link_fd: int,
) -> Callable[[], None]:
    """What a worker of that role does until it ends."""
    if role == "all":
        return Worker(link, model, profile, slots, *limits).run
    if role == "lm":
        beside = socket.socket(fileno=link_fd)
        return lambda: asyncio.run(LMWorker(model, slots, *limits).run(link, beside))
    return lambda: asyncio.run(Token2WavWorker(model, limits[-1]).run(link))


def main() -> None:
    role, fd, link_fd, model, device, dtype, threads, kind, *numbers = sys.argv[1:]
    slots, waiting, max_wait, cache_bytes = numbers
    limits = int(waiting), float(max_wait), int(cache_bytes)
    logging.basicConfig(format=f"%(asctime)s worker {role} %(levelname)s %(message)s")
    logging.getLogger("cosyserve").setLevel(logging.INFO)
    if int(threads):
        torch.set_num_threads(int(threads))
    link = socket.socket(fileno=int(fd))
    try:
        loaded = load_model(model, device=device, dtype=dtype)
        tuned = profile(kind)
        places = int(slots) or tuned.slots_on(loaded.device)
        run = _role(role, link, loaded, tuned, places, limits, int(link_fd))
    except CosyError as error:
        link.sendall(frame(Failed.of(-1, error)))
        os._exit(2)
    try:
        run()
    except Exception:  # of a GPU that has failed: whoever started us starts another
        logging.exception("the worker ends")
        os._exit(1)
    os._exit(0)  # threads that still compute must not keep a worker that nobody hears


if __name__ == "__main__":
    main()
