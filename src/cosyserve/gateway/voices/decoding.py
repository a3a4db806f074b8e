"""Recordings of strangers, decoded in a child process with tight limits.

A file that makes a codec crash, loop or eat memory ends the child, and is an error of the file.
Run as a module, this file is the child.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import struct
import sys
from asyncio.subprocess import Process

import numpy as np

from cosyserve.audio import Audio, decode
from cosyserve.contracts import MAX_PROMPT_SECONDS
from cosyserve.errors import AudioError, OverloadError

MEMORY_BYTES = 1 << 30  # of address space: libraries and the recording
CPU_SECONDS = 10
WALL_SECONDS = 20.0
OPEN_FILES = 32
RETRY_AFTER = 5.0  # seconds, for those whose child could not be started
NICENESS = 5  # those who speak go first

RATE = struct.Struct("<I")
DECODED, REFUSED = 0, 3  # exit codes; any other is a crash


class Decoder:
    """Decodes files, each in a child of its own. One child is kept ready, because a process takes
    a third of a second to start."""

    def __init__(self) -> None:
        self._spare: asyncio.Task[Process] | None = None

    def prepare(self) -> None:
        """Makes sure that a child is ready, or will be soon."""
        if self._spare is None or _failed(self._spare):
            self._spare = asyncio.create_task(_start_child())

    async def decode(self, data: bytes) -> Audio:
        child = await self._take_child()
        try:
            code, output = await _hand_over(child, data)
        finally:
            await _end(child)
            self.prepare()
        if code == REFUSED:
            raise AudioError(output.decode())
        if code != DECODED:
            raise AudioError("the recording can't be decoded within the limits; export it again")
        (rate,) = RATE.unpack_from(output)
        return Audio(np.frombuffer(output, np.float32, offset=RATE.size), rate)

    async def close(self) -> None:
        if self._spare:
            with contextlib.suppress(OSError):
                await _end(await self._spare)
            self._spare = None

    async def _take_child(self) -> Process:
        self.prepare()
        spare, self._spare = self._spare, None
        assert spare
        try:
            child = await spare
            return child if child.returncode is None else await _start_child()
        except OSError as error:  # no file, process or memory is left
            raise OverloadError(
                f"no process can be started to decode the recording: {error.strerror}", RETRY_AFTER
            ) from error


def _failed(spare: asyncio.Task[Process]) -> bool:
    return spare.done() and (spare.cancelled() or spare.exception() is not None)


async def _start_child() -> Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is not for it: it ends when its input does
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # each thread maps memory of its own
    )


async def _hand_over(child: Process, data: bytes) -> tuple[int | None, bytes]:
    try:
        async with asyncio.timeout(WALL_SECONDS):
            output, _ = await child.communicate(data)
    except TimeoutError:
        return None, b""
    return child.returncode, output


async def _end(child: Process) -> None:
    if child.returncode is None:
        child.kill()
        await child.wait()


def _limit_this_process() -> None:
    limits = {
        resource.RLIMIT_AS: MEMORY_BYTES,
        resource.RLIMIT_CPU: CPU_SECONDS,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
    }
    for kind, limit in limits.items():
        resource.setrlimit(kind, (limit, limit))


def _child() -> int:
    _limit_this_process()
    os.nice(NICENESS)
    import av  # noqa: F401 - all codecs, before there is anything to decode

    try:
        audio = decode(sys.stdin.buffer, max_seconds=MAX_PROMPT_SECONDS)
    except AudioError as error:
        sys.stdout.buffer.write(str(error).encode())
        return REFUSED
    sys.stdout.buffer.write(RATE.pack(audio.rate) + audio.samples.tobytes())
    return DECODED


if __name__ == "__main__":
    sys.exit(_child())
