"""Recordings of strangers, decoded in a child process that may not use much of anything.

A file that makes a codec crash, loop or eat memory ends the child, and is an error of the file.
Knows no request. Run as a module, this file is the child.
"""

from __future__ import annotations

import asyncio
import os
import resource
import struct
import sys

import numpy as np

from cosyserve.audio import Audio, decode
from cosyserve.contracts import MAX_PROMPT_SECONDS, AudioError

MEMORY_BYTES = 1 << 30  # of address space: libraries and the recording
CPU_SECONDS = 10
WALL_SECONDS = 20.0
OPEN_FILES = 32
CHILDREN = 2  # at once; more would take the cores from those who speak

RATE = struct.Struct("<I")
DECODED, REFUSED = 0, 3  # exit codes; any other is a crash


class Decoder:
    """Decodes files, few at a time."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(CHILDREN)

    async def decode(self, data: bytes) -> Audio:
        async with self._turns:
            code, output = await _run_child(data)
        if code == REFUSED:
            raise AudioError(output.decode())
        if code != DECODED:
            raise AudioError("the recording can't be decoded within the limits; export it again")
        (rate,) = RATE.unpack_from(output)
        return Audio(np.frombuffer(output, np.float32, offset=RATE.size), rate)


async def _run_child(data: bytes) -> tuple[int | None, bytes]:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # each thread maps memory of its own
    )
    try:
        async with asyncio.timeout(WALL_SECONDS):
            output, _ = await child.communicate(data)
    except TimeoutError:
        return None, b""
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    return child.returncode, output


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
    try:
        audio = decode(sys.stdin.buffer, max_seconds=MAX_PROMPT_SECONDS)
    except AudioError as error:
        sys.stdout.buffer.write(str(error).encode())
        return REFUSED
    sys.stdout.buffer.write(RATE.pack(audio.rate) + audio.samples.tobytes())
    return DECODED


if __name__ == "__main__":
    sys.exit(_child())
