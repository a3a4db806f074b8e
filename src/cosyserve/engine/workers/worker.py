"""A worker process: a model and its scheduler behind one socket.

    python -m cosyserve.engine.workers.worker FD

`WorkerOptions` in JSON come on standard input. When the other end of the socket closes, the worker
ends.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import msgspec
import torch

from cosyserve.backends.estimators.open import use_backend
from cosyserve.checkpoints.load import load_model
from cosyserve.checkpoints.model import Model
from cosyserve.checkpoints.parts import MODULES
from cosyserve.contracts import AudioChunk, EngineStats
from cosyserve.engine.compute.errors import client_error
from cosyserve.engine.compute.gpu_memory import limit_gpu_memory
from cosyserve.engine.compute.profile import profile
from cosyserve.engine.scheduling.intake import Intake, Ticket
from cosyserve.engine.scheduling.loop import Loop
from cosyserve.engine.scheduling.start import start_scheduler
from cosyserve.engine.split.backend_lm import BackendLM
from cosyserve.engine.split.lm_backends import open_llm_server
from cosyserve.engine.workers.messages import (
    Alive,
    Chunk,
    Embedded,
    EmbedRequest,
    End,
    Failed,
    Forget,
    FromWorker,
    NotStarted,
    Open,
    Push,
    Ready,
    Stats,
    ToWorker,
    bodies,
    frame,
    to_worker,
)
from cosyserve.engine.workers.options import WorkerOptions
from cosyserve.engine.workers.outbox import Outbox
from cosyserve.engine.workers.threads import Threads
from cosyserve.errors import CosyError
from cosyserve.models.kernels import use_kernels
from cosyserve.text.number_process import NumberProcess
from cosyserve.voices.enroll import enroll
from cosyserve.voices.memory.mirror import ReceivedVoices
from cosyserve.voices.shipped import describe

STATS_SECONDS = 0.1  # between two reports, while anything runs
# That a GPU may take for a step or a command of the scheduler, or for chunks; one that takes longer
# has stopped. A CPU takes what it takes.
GPU_SECONDS = 120.0


class Worker:
    def __init__(self, link: socket.socket, model: Model, options: WorkerOptions) -> None:
        self.link = link
        self.model = model
        _, tokenizer = model.need_text_side()
        llm = options.llm
        lm = BackendLM(open_llm_server(llm, model)) if llm else None
        self._tickets: dict[int, Ticket] = {}
        self._voices = ReceivedVoices(options.voice_cache_bytes)
        self._info = describe(model)
        self._scheduler = start_scheduler(
            model,
            lm,
            voices=self._info.voices,
            slots=options.slots,
            max_waiting=options.waiting,
            max_wait=options.max_wait,
            profile=profile(options.profile),
        )
        on_cpu = all(device.type == "cpu" for device in model.devices)
        adapts = on_cpu and not options.threads
        self._threads = Threads(torch.get_num_threads() if adapts else 1)
        self._loop = Loop(self._scheduler, self._after)
        self._gpus = [device for device in model.devices if device.type == "cuda"]
        self._chunks_begun: float | None = None  # as of the last turn, for another thread
        self._resting, self._reported_at = True, 0.0
        self._reported = self._scheduler.stats()
        self._outbox = Outbox(link, self._loop.stop, self._sign_of_life)
        if llm and lm:
            lm.start(self._loop.wake)
            sampling = llm.sampling.per_request()
            self._info = replace(self._info, takes_pieces=False, sampling=sampling)
        self._intake = Intake(self._loop, tokenizer, NumberProcess(), self._threads.adopt)
        self._enrolling = ThreadPoolExecutor(1, "enroll")
        self._enrolments: dict[int, Future[None]] = {}  # that wait or run

    def run(self) -> None:
        self._outbox.put(Ready(self._info, self._stats()))
        threading.Thread(target=self._listen, name="listen", daemon=True).start()
        try:
            self._loop.run()
        finally:  # those who are told why must hear it
            self._outbox.close()

    def _listen(self) -> None:
        try:
            with self.link.makefile("rb") as stream:
                for body in bodies(stream):
                    self._take(to_worker.decode(body))
        finally:
            self._loop.stop()

    def _take(self, message: ToWorker) -> None:
        if isinstance(message, EmbedRequest):
            self._enrol(message)
        elif isinstance(message, Open):
            self._open(message)
        elif isinstance(message, Forget):
            self._voices.forget(message.voice_key)
        elif enrolment := self._enrolments.pop(message.id, None):
            enrolment.cancel()  # unless it runs already
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
            if isinstance(item, CosyError):
                self._tickets.pop(message.id, None)
                self._outbox.put(Failed.of(message.id, item))
            else:
                if item.final:
                    self._tickets.pop(message.id, None)
                self._outbox.put(Chunk(message.id, item))

        try:
            request = message.request(self._voices.take(message.voice_key, message.voice))
        except CosyError as error:
            self._outbox.put(Failed.of(message.id, error))
            return
        ticket = self._tickets[message.id] = Ticket(self._intake, request, sink)
        ticket.open()

    def _enrol(self, message: EmbedRequest) -> None:
        enrolment = self._enrolments[message.id] = self._enrolling.submit(self._embed, message)
        enrolment.add_done_callback(lambda _: self._enrolments.pop(message.id, None))

    def _embed(self, message: EmbedRequest) -> None:
        self._threads.adopt()
        try:
            self._outbox.put(Embedded(message.id, enroll(self.model, message.recording)))
        except Exception as error:
            self._outbox.put(Failed.of(message.id, client_error(error)))

    def _sign_of_life(self) -> FromWorker | None:
        """Nothing, if a GPU does not come to an end of what it was given; counts, if they changed
        shortly before everybody had to wait for a text. From another thread."""
        begun = [at for at in (self._loop.turn_began, self._chunks_begun) if at is not None]
        if self._gpus and begun and time.monotonic() - min(begun) > GPU_SECONDS:
            return None
        return Stats(self._stats()) if self._scheduler.stats() != self._reported else Alive()

    def _after(self) -> None:
        self._chunks_begun = self._scheduler.chunks_begun
        self._report()
        self._threads.adjust()

    def _report(self) -> None:
        """Counts, when they changed and not too often; at rest always the last ones. Who comes then
        is not told of at once: to count takes a while on a GPU, and somebody waits for a sound."""
        now, resting = time.monotonic(), not (self._scheduler.running or self._scheduler.waiting)
        if self._resting and not resting:
            self._reported_at = now
        self._resting = resting
        if not resting and now - self._reported_at < STATS_SECONDS:
            return
        stats = self._scheduler.stats()
        if stats != self._reported:
            self._reported_at, self._reported = now, stats
            self._outbox.put(Stats(self._stats()))

    def _stats(self) -> EngineStats:
        """The scheduler's, with what torch holds on each GPU, pools of CUDA graphs included."""
        memory = {str(device): torch.cuda.memory_reserved(device) for device in self._gpus}
        return replace(self._scheduler.stats(), gpu_memory=memory)


def work(link: socket.socket, options: WorkerOptions) -> NoReturn:
    """Loads the model and speaks until the far end of the link closes; then the process ends."""
    logging.basicConfig(format="%(asctime)s worker %(levelname)s %(message)s")
    logging.getLogger("cosyserve").setLevel(logging.INFO)
    if options.threads:
        torch.set_num_threads(options.threads)
    try:
        model = load_model(
            options.model,
            device=options.device,
            token2wav_devices=options.token2wav_devices,
            dtype=options.dtype,
            lm_file=options.lm_file,
            only=[part for part in MODULES if part != "lm"] if options.llm else None,
        )
        engines = Path(options.flow_engines)
        model = use_backend(model, options.model, options.flow_backend, engines, options.dtype)
        use_kernels(options.kernels, model.devices)
        if options.gpu_memory:
            limit_gpu_memory(options.gpu_memory, model.devices)
        worker = Worker(link, model, options)
    except CosyError as error:
        link.sendall(frame(NotStarted(str(error))))
        os._exit(2)
    try:
        worker.run()
    except Exception:  # of a GPU that has failed: the gateway starts another worker
        logging.exception("the worker ends")
        os._exit(1)
    os._exit(0)  # threads that still compute must not keep a worker that nobody hears


if __name__ == "__main__":
    work(
        socket.socket(fileno=int(sys.argv[1])),
        msgspec.json.decode(sys.stdin.buffer.read(), type=WorkerOptions),
    )
