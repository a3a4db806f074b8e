"""A worker that hums at a given pace: the messages of a real one, and no model.

    python -m benchmarks.mock_worker FD CHUNKS TOKENS FIRST PACE

Every request hears CHUNKS chunks of TOKENS tokens: the first after FIRST seconds, each later one
PACE times the length of a chunk after the one before.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from functools import partial

import numpy as np

from cosyserve.contracts import (
    SAMPLES_PER_TOKEN,
    TOKENS_PER_SECOND,
    AudioChunk,
    EngineStats,
    FinishReason,
    ModelInfo,
    Voice,
    VoiceFormat,
)
from cosyserve.engine.workers.messages import (
    Alive,
    Cancel,
    Chunk,
    Open,
    Ready,
    frame,
    next_body,
    to_worker,
)
from cosyserve.engine.workers.outbox import ALIVE_SECONDS

SLOTS = 256
VOICE = Voice("", np.zeros(0, np.int32), np.zeros((0, 80), np.float32), np.ones(192, np.float32))


async def hum(
    link: asyncio.StreamWriter, number: int, chunks: int, tokens: int, first: float, pace: float
) -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, tokens * SAMPLES_PER_TOKEN)
    wave = noise.astype(np.float32)  # as hard to encode as speech, which a tone is not
    seconds = tokens / TOKENS_PER_SECOND
    due = asyncio.get_running_loop().time() + first
    for index in range(chunks):
        await asyncio.sleep(due - asyncio.get_running_loop().time())
        finish: FinishReason | None = "stop" if index == chunks - 1 else None
        chunk = AudioChunk(wave, index, index * seconds, tokens, finish, 10)
        link.write(frame(Chunk(number, chunk)))
        await link.drain()
        due += pace * seconds


async def live(link: asyncio.StreamWriter) -> None:
    while True:
        await asyncio.sleep(ALIVE_SECONDS)
        link.write(frame(Alive()))


def _forget(humming: dict[int, asyncio.Task[None]], number: int, _: asyncio.Task[None]) -> None:
    humming.pop(number, None)


async def main(fd: int, chunks: int, tokens: int, first: float, pace: float) -> None:
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=fd))
    model = ModelInfo("mock", VoiceFormat("mock"), speech=False, voices={"default": VOICE})
    writer.write(frame(Ready(model, EngineStats(ready=True, waiting=0, running=0, slots=SLOTS))))
    humming: dict[int, asyncio.Task[None]] = {}
    living = asyncio.create_task(live(writer))
    with contextlib.suppress(asyncio.IncompleteReadError):
        while True:
            message = to_worker.decode(await next_body(reader))
            if isinstance(message, Open):
                task = asyncio.create_task(hum(writer, message.id, chunks, tokens, first, pace))
                humming[message.id] = task
                task.add_done_callback(partial(_forget, humming, message.id))
            elif isinstance(message, Cancel) and message.id in humming:
                humming[message.id].cancel()
    living.cancel()


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:4]), *map(float, sys.argv[4:])))
