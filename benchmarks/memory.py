"""Whether anything is left behind: 10,000 requests, and 1,000 clients that leave when they like.

    python -m benchmarks.memory [--json FILE]

The requests go to the gateway before a worker that hums. The clients leave an engine with the test
model in this process, so that its tensors can be counted, byte by byte.
"""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import os
import random
import socket
import tempfile
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import torch
import uvicorn
from fastapi import FastAPI

from benchmarks.figures import Figure, run
from benchmarks.servers import Process, bench, humming
from cosyserve.checkpoints.model import assemble
from cosyserve.checkpoints.testmodel import random_parts
from cosyserve.engine.in_process import LocalEngine
from cosyserve.gateway.app import create_app
from cosyserve.gateway.limits import Limits
from cosyserve.settings import Settings
from cosyserve.voices.store import open_store

REQUESTS, WARM = 10_000, 500
CLIENTS, AT_ONCE = 1000, 16


def growth() -> Figure:
    with humming(2, 5, 0.0, 0.0) as server:
        concurrency = ("--concurrency", "16")
        bench(server, *concurrency, "--requests", str(WARM))
        processes = server.gateway, server.worker
        before = [process.bytes for process in processes]
        figures = bench(server, *concurrency, "--requests", str(REQUESTS))["figures"]
        grown = [now.bytes - then for now, then in zip(processes, before, strict=True)]
        files = server.gateway.files
    assert figures["served"] == REQUESTS
    return Figure(
        f"memory after {REQUESTS} requests",
        sum(grown) / 1e6,
        20.0,
        "MB",
        detail=f"gateway {grown[0] / 1e6:.1f}, worker {grown[1] / 1e6:.1f} MB; {files} files open",
    )


def leave(port: int, chance: random.Random) -> None:
    """A client that hangs up in the middle of its request, or anywhere in its answer."""
    formats = ["pcm", "mp3", "opus", "flac", "wav", "aac", "f32", "mulaw", "alaw"]
    fields = {"model": "tts-1", "input": "Hello there. " * chance.randrange(1, 5)}
    body = json.dumps(fields | {"response_format": chance.choice(formats)}).encode()
    head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    sent = head.encode() + body
    with socket.create_connection(("127.0.0.1", port)) as client:
        if chance.random() < 0.1:
            client.sendall(sent[: chance.randrange(len(sent))])
            return
        client.sendall(sent)
        client.settimeout(0.001 + chance.random() * 0.5)
        try:
            while client.recv(chance.randrange(1, 20_000)) and chance.random() < 0.8:
                pass
        except OSError:
            pass


def stay(port: int) -> None:
    """A client that hears all of it, so that what is made once, as the flow's noise, is there."""
    client = http.client.HTTPConnection("127.0.0.1", port)
    fields = {"model": "tts-1", "input": "Hello there.", "response_format": "pcm"}
    client.request("POST", "/v1/audio/speech", json.dumps(fields))
    answer = client.getresponse()
    assert answer.status == 200, answer.read()
    answer.read()
    client.close()


def held(engine: LocalEngine, app: FastAPI) -> dict[str, int]:
    """Everything that a session could leave behind."""
    gc.collect()
    scheduler = engine._loop.scheduler
    with warnings.catch_warnings():  # some of torch's own objects warn when they are looked at
        warnings.simplefilter("ignore", FutureWarning)
        tensors = [item for item in gc.get_objects() if torch.is_tensor(item)]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return {
        "requests": app.state.gate.inside,
        "sessions": len(scheduler.running) + len(scheduler.waiting),
        "slots": len(scheduler.lm.rows),
        "bytes": sum(storages.values()),
        "files": Process(os.getpid()).files - len(app.state.encoders.processes),  # links to them
    }


def settled(engine: LocalEngine, app: FastAPI, goal: dict[str, int] | None) -> dict[str, int]:
    """What is held when it is what is hoped for, or else when it changes no more."""
    until = time.monotonic() + 20
    before: dict[str, int] = {}
    while True:
        now = held(engine, app)
        at_rest = not (now["requests"] or now["sessions"])
        if (at_rest and now == (goal or before)) or time.monotonic() > until:
            return now
        before = now
        time.sleep(0.3)


def leaving(clients: int = CLIENTS) -> list[Figure]:
    torch.set_num_threads(1)
    engine = LocalEngine(assemble(random_parts()), slots=8, max_waiting=64)
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        app = create_app(engine, open_store(folder), Limits.of(Settings()))
        config = uvicorn.Config(app, http="httptools", lifespan="off", log_level="critical")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: server.run(sockets=[listener]))
        thread.start()
        port = listener.getsockname()[1]
        stay(port)
        chances = [random.Random(seed) for seed in range(clients)]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda chance: leave(port, chance), chances[: clients // 5]))
            start = settled(engine, app, None)
            list(pool.map(lambda chance: leave(port, chance), chances))
            end = settled(engine, app, start)
        opened = engine.stats().sessions
        server.should_exit = True
        thread.join()
    asyncio.run(engine.close())
    detail = f"{opened} sessions were opened"
    return [
        Figure(
            f"left behind by {clients} clients: {what}",
            abs(end[what] - start[what]),
            0.0,
            detail=detail,
        )
        for what in start
    ]


def measure() -> list[Figure]:
    return [growth(), *leaving()]


if __name__ == "__main__":
    run(measure, __doc__ or "")
