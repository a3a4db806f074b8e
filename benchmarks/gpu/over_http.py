"""First audio over HTTP: our gateway in this process, a client in another.

    python -m benchmarks.gpu.over_http PORT REQUESTS

is the client; it prints milliseconds as JSON.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace

from benchmarks.gpu.bench import Bench, percentile

TEXT = "The quick brown fox jumps."


def first_audio_http_ms(bench: Bench) -> dict[str, float]:
    import uvicorn

    from cosyserve.checkpoints.model import Model
    from cosyserve.engine.compute.profile import LATENCY
    from cosyserve.engine.in_process import LocalEngine
    from cosyserve.gateway.app import create_app
    from cosyserve.gateway.limits import Limits
    from cosyserve.settings import Settings
    from cosyserve.text import byte_tokenizer
    from cosyserve.voices.store import open_store

    model = Model(
        bench.config,
        bench.device,
        bench.lm,
        ((bench.flow, bench.vocoder),),
        byte_tokenizer(),
        None,
        None,
        (),
    )
    # For one stream at a time: fewer shapes to warm up.
    engine = LocalEngine(model, profile=replace(LATENCY, slots=bench.few(8, 2), rows=(1,)))
    voice = replace(bench.voice, prompt_text="It was a fine day.")
    engine.model = replace(engine.model, voices={"default": voice})
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        app = create_app(engine, open_store(folder), Limits.of(Settings()))
        config = uvicorn.Config(app, http="httptools", lifespan="off", log_level="critical")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: server.run(sockets=[listener]))
        thread.start()
        try:
            port, count = str(listener.getsockname()[1]), str(bench.few(50, 2))
            command = [sys.executable, "-m", "benchmarks.gpu.over_http", port, count]
            done = subprocess.run(
                command, stdout=subprocess.PIPE, text=True, check=True, timeout=120
            )
        finally:
            server.should_exit = True
            thread.join()
            asyncio.run(engine.close())
    times: list[float] = json.loads(done.stdout)
    bench.samples["first_audio_http_ms"] = times
    return {"p50": percentile(times, 0.5), "p95": percentile(times, 0.95)}


def ask(port: int, seed: int) -> float:
    """Milliseconds to the first audio; the rest is listened to, so that the next one is alone."""
    link = http.client.HTTPConnection("127.0.0.1", port)
    link.connect()
    fields = {"model": "tts-1", "input": TEXT, "response_format": "pcm", "seed": seed}
    begun = time.perf_counter()
    headers = {"Content-Type": "application/json"}
    link.request("POST", "/v1/audio/speech", json.dumps(fields), headers)
    answer = link.getresponse()
    first = answer.read(1)
    took = 1e3 * (time.perf_counter() - begun)
    assert answer.status == 200, answer.read()
    assert first
    answer.read()
    link.close()
    return took


if __name__ == "__main__":
    port, count = map(int, sys.argv[1:])
    ask(port, 0)
    sys.stdout.write(json.dumps([ask(port, seed) for seed in range(count)]))
