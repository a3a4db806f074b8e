"""A worker process: a model and its loop, behind one socket.

    python -m cosyserve.engine.worker FD MODEL DEVICE DTYPE THREADS SLOTS WAITING

Knows no client. When the other end of the socket closes, the worker ends.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from cosyserve.audio import Audio
from cosyserve.contracts import AudioChunk, CosyError
from cosyserve.engine.local import describe
from cosyserve.engine.loop import Loop
from cosyserve.engine.messages import (
    LENGTH,
    Cancel,
    Chunk,
    Embed,
    Embedded,
    Failed,
    FromWorker,
    Open,
    Ready,
    Stats,
    frame,
    to_worker,
)
from cosyserve.engine.scheduler import Scheduler, told
from cosyserve.engine.session import Session
from cosyserve.engine.tts import load
from cosyserve.models.model import Model
from cosyserve.voices import file as voice_file
from cosyserve.voices.enroll import enroll

STATS_EVERY = 0.1  # seconds


class Worker:
    def __init__(self, link: socket.socket, model: Model, slots: int, waiting: int) -> None:
        self.link, self.model = link, model
        self._sending = threading.Lock()
        self._sessions: dict[int, Session] = {}
        self._scheduler = Scheduler.of(model, slots=slots, waiting=waiting)
        self._loop = Loop(self._scheduler, self._report)
        self._reported = (0.0, self._scheduler.stats())
        self._enrolling = ThreadPoolExecutor(1, "enroll")

    def run(self) -> None:
        info = describe(self.model)
        voices = {name: voice_file.to_bytes(voice) for name, voice in info.voices.items()}
        self._send(Ready(info.name, info.family, info.fingerprint, info.speech, voices))
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

    def _take(self, message: Open | Cancel | Embed) -> None:
        if isinstance(message, Embed):
            self._enrolling.submit(self._embed, message)
        elif isinstance(message, Cancel):
            self._loop.submit(lambda scheduler: self._cancel(scheduler, message.id))
        else:
            self._loop.submit(lambda scheduler: self._open(scheduler, message))

    def _open(self, scheduler: Scheduler, message: Open) -> None:
        def sink(item: AudioChunk | CosyError) -> None:
            if isinstance(item, CosyError) or item.final:
                self._sessions.pop(message.id, None)
            told = Failed if isinstance(item, CosyError) else Chunk
            self._send(told.of(message.id, item))  # type: ignore[arg-type]

        try:
            self._sessions[message.id] = scheduler.open(message.request(), sink)
        except CosyError as error:
            self._send(Failed.of(message.id, error))

    def _cancel(self, scheduler: Scheduler, number: int) -> None:
        if session := self._sessions.pop(number, None):
            scheduler.cancel(session)

    def _embed(self, message: Embed) -> None:
        audio = Audio(np.frombuffer(message.samples, np.float32), message.rate)
        about = {"name": message.name, "language": message.language, "consent": message.consent}
        try:
            voice = enroll(self.model, audio, message.text, **about)  # type: ignore[arg-type]
            self._send(Embedded(message.id, voice_file.to_bytes(voice)))
        except Exception as error:
            self._send(Failed.of(message.id, told(error)))

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


def main() -> None:
    fd, model, device, dtype, threads, slots, waiting = sys.argv[1:]
    logging.basicConfig(format="%(asctime)s worker %(levelname)s %(message)s")
    if int(threads):
        torch.set_num_threads(int(threads))
    with socket.socket(fileno=int(fd)) as link:
        try:
            tts = load(model, device=device, dtype=dtype)
        except CosyError as error:
            link.sendall(frame(Failed.of(-1, error)))
            os._exit(2)
        Worker(link, tts.model, int(slots), int(waiting)).run()
    os._exit(0)  # threads that still compute must not keep a worker that nobody hears


if __name__ == "__main__":
    main()
