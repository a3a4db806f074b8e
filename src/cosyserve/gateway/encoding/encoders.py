"""An encoder for each listener: in the gateway what is quick, with a codec or a resampler in a
process of its own beside it, in more of them the more listeners there are."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from contextlib import suppress
from typing import Protocol

import numpy as np

from cosyserve.audio import AudioFormat, Encoder
from cosyserve.audio.formats import is_quick, output_rate
from cosyserve.contracts import SAMPLE_RATE, Floats
from cosyserve.errors import OverloadError, WorkerError
from cosyserve.gateway.encoding.messages import Encode, FinishEncoder
from cosyserve.gateway.encoding.process import EncoderProcess

SLICE = SAMPLE_RATE  # samples that are encoded at once, while all others wait
RETRY_AFTER = 5.0  # seconds, for those whose process could not be started
IDLE_SECONDS = 300.0  # that a process may have nothing to do
CROWDED = 8  # encoders of a process: a tenth of a core for MP3 in real time, whole texts take more


class SpeechEncoder(Protocol):
    """Encodes mono speech [n] chunk by chunk, once it is entered; the next time it is, another."""

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...

    async def push(self, samples: Floats) -> bytes: ...

    async def finish(self) -> bytes: ...


class InlineEncoder:
    """Takes less time than asking another process would."""

    def __init__(self, audio_format: AudioFormat) -> None:
        self._audio_format = audio_format

    def __enter__(self) -> None:
        self._encoder = Encoder(self._audio_format, out_rate=SAMPLE_RATE)

    def __exit__(self, *error: object) -> None:
        pass  # it holds a few samples

    async def push(self, samples: Floats) -> bytes:
        if len(samples) <= SLICE:
            return self._encoder.push(samples)
        return await asyncio.to_thread(self._encoder.push, samples)

    async def finish(self) -> bytes:
        return self._encoder.finish()


class RemoteEncoder:
    _ids = itertools.count()

    def __init__(self, encoders: Encoders, audio_format: AudioFormat, rate: int) -> None:
        self._encoders = encoders
        self._audio_format = audio_format
        self._rate = rate

    def __enter__(self) -> None:
        """Returns before the codec is open: speech is computed meanwhile."""
        self._pushed = False
        self._id = next(self._ids)
        self._process = self._encoders.process()
        self._opened = self._process.open(self._id, self._audio_format, self._rate)

    def __exit__(self, *error: object) -> None:
        self._process.drop(self._id)

    async def push(self, samples: Floats) -> bytes:
        try:
            data = await self._push(samples)
        except WorkerError:
            if self._pushed:
                raise
            self.__exit__()
            self.__enter__()
            data = await self._push(samples)
        self._pushed = True
        return data

    async def _push(self, samples: Floats) -> bytes:
        await asyncio.wrap_future(self._opened)
        parts = np.split(samples, range(SLICE, len(samples), SLICE))
        return b"".join([await self._ask(Encode(self._id, part)) for part in parts])

    async def finish(self) -> bytes:
        return await self._ask(FinishEncoder(self._id))

    async def _ask(self, message: Encode | FinishEncoder) -> bytes:
        return await asyncio.wrap_future(self._process.ask(message))


class Encoders:
    """Processes that encode: one, and another one whenever all of them have much to do."""

    def __init__(self, most_processes: int | None = None) -> None:
        self._most_processes = most_processes or cores()
        self.processes: list[EncoderProcess] = []

    def prepare(self) -> None:
        """There is a process, or will be soon, and none that nobody has needed for a while."""
        living = [process for process in self.processes if process.alive]
        self.processes = living[:1] or [_started()]
        for process in living[1:]:
            if process.idle_seconds > IDLE_SECONDS:
                process.close()
            else:
                self.processes.append(process)

    def of(self, audio_format: AudioFormat, sample_rate: int | None = None) -> SpeechEncoder:
        """A format that can't have this rate is an `AudioError`."""
        rate = output_rate(audio_format, sample_rate)
        if is_quick(audio_format, sample_rate):
            return InlineEncoder(audio_format)
        return RemoteEncoder(self, audio_format, rate)

    def process(self) -> EncoderProcess:
        """The one with the least to do. A new one is not used before it has loaded its codecs."""
        self.prepare()
        loaded = [process for process in self.processes if process.loaded]
        least = min(loaded or self.processes, key=lambda process: process.encoders)
        if least.encoders >= CROWDED and len(loaded) == len(self.processes) < self._most_processes:
            with suppress(OverloadError):  # the others do it, more slowly
                self.processes.append(_started())
        return least

    def close(self) -> None:
        for process in self.processes:
            process.close()


def _started() -> EncoderProcess:
    try:
        return EncoderProcess()
    except OSError as error:  # no file, process or memory is left
        message = f"no process can be started to encode the speech: {error.strerror}"
        raise OverloadError(message, RETRY_AFTER) from error


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
