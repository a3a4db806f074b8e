"""A process that encodes, and the gateway's hold on it.

Codecs of one process wait for Python's lock at each of their frames, a few thousand times a second
for all listeners. Run as a module, this file is the process.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import IO

from cosyserve.audio import AudioFormat, Encoder
from cosyserve.engine.workers.messages import bodies, frame
from cosyserve.errors import AudioError, WorkerError
from cosyserve.gateway.encoding.messages import (
    DropEncoder,
    Encode,
    Encoded,
    EncoderFailed,
    FromEncoder,
    NotEncoded,
    OpenEncoder,
    ToEncoder,
    from_encoder,
    to_encoder,
)
from cosyserve.malloc import return_large_blocks

LARGE_BLOCK = 1 << 20  # a FLAC encoder has 7 MB; glibc would keep those of many
GREETING = Encoded(b"")
HANGS_SECONDS = 30.0  # without an answer; one takes milliseconds, loading all codecs a second

log = logging.getLogger(__name__)


class EncoderProcess:
    """Answers in the order in which it was asked; a thread waits for it. It starts at once, and is
    asked at once, but answers when it has loaded its codecs. One that hangs is ended."""

    def __init__(self) -> None:
        self._open: set[int] = set()  # ids of encoders
        self._idle_since = time.monotonic()
        self._silent = False  # it ends, or has ended
        self._thread = ThreadPoolExecutor(1, "encoder")
        self._link, far_end = socket.socketpair()
        self._link.settimeout(HANGS_SECONDS)
        with far_end:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=far_end.fileno(),
                stdout=far_end.fileno(),
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
                start_new_session=True,  # Ctrl-C is not for it: it ends when its input does
            )
        self._answers = bodies(self._link.makefile("rb"))
        self._loaded = self._thread.submit(self._answer)

    @property
    def alive(self) -> bool:
        return not self._silent and self._process.poll() is None

    @property
    def loaded(self) -> bool:
        return self._loaded.done()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def encoders(self) -> int:
        """That are open."""
        return len(self._open)

    @property
    def idle_seconds(self) -> float:
        return 0.0 if self._open else time.monotonic() - self._idle_since

    def open(self, id: int, audio_format: AudioFormat, rate: int) -> Future[bytes]:
        self._open.add(id)
        return self.ask(OpenEncoder(id, audio_format, rate))

    def ask(self, message: ToEncoder) -> Future[bytes]:
        return self._thread.submit(self._exchange, message)

    def drop(self, id: int) -> None:
        self._open.discard(id)
        self._idle_since = time.monotonic()
        self._thread.submit(self._tell, DropEncoder(id))

    def close(self) -> None:
        """Ends the process; what it was asked and has not answered is a `WorkerError`."""
        self._process.kill()
        self._thread.shutdown()
        self._link.close()
        self._process.wait()

    def _exchange(self, message: ToEncoder) -> bytes:
        self._tell(message)
        return self._answer()

    def _tell(self, message: ToEncoder) -> None:
        try:
            self._link.sendall(frame(message))
        except OSError:  # who waits for an answer is told
            self._process.kill()

    def _answer(self) -> bytes:
        body = None
        with suppress(OSError):
            body = next(self._answers, None)
        if body is None:
            self._silent = True
            self._process.kill()
            self._process.wait()
            raise WorkerError("the process that encodes this speech has died: ask for it again")
        answer = from_encoder.decode(body)
        if isinstance(answer, NotEncoded):
            raise AudioError(answer.message)
        if isinstance(answer, EncoderFailed):
            raise WorkerError("the encoder of this speech has failed: ask for it again")
        return answer.data


def serve_encoders(requests: IO[bytes]) -> Iterator[FromEncoder]:
    """The process: the answers to all messages that have one, until there are no more."""
    encoders: dict[int, Encoder] = {}
    for body in bodies(requests):
        message = to_encoder.decode(body)
        if isinstance(message, DropEncoder):
            encoders.pop(message.id, None)
            continue
        try:
            yield Encoded(_answered(message, encoders))
        except AudioError as error:
            yield NotEncoded(str(error))
        except Exception:
            log.exception("an encoder has failed")
            encoders.pop(message.id, None)
            yield EncoderFailed()


def _answered(message: ToEncoder, encoders: dict[int, Encoder]) -> bytes:
    if isinstance(message, OpenEncoder):
        encoders[message.id] = Encoder(message.audio_format, out_rate=message.rate)
        return b""
    encoder = encoders[message.id]
    return encoder.push(message.samples) if isinstance(message, Encode) else encoder.finish()


def main() -> None:
    return_large_blocks(LARGE_BLOCK)
    for audio_format in AudioFormat:
        Encoder(audio_format)  # loads its codec, so that no listener has to wait for that
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    answers.write(frame(GREETING))
    answers.flush()
    for answer in serve_encoders(requests):
        answers.write(frame(answer))
        answers.flush()


if __name__ == "__main__":
    with suppress(ConnectionError):  # the gateway was killed
        main()
