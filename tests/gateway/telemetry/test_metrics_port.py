"""A port for scrapers: the metrics without a key, and nothing else."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import httpx
import pytest

from cosyserve.errors import InputError
from cosyserve.gateway.doors import Doors
from cosyserve.gateway.keys import KeyRing
from cosyserve.gateway.limits import Limits
from cosyserve.gateway.serve import serve
from cosyserve.gateway.telemetry.metrics import Metrics
from cosyserve.gateway.telemetry.metrics_port import answer_scrapers
from cosyserve.gateway.transport.listening import listen
from cosyserve.settings import Settings
from cosyserve.voices.store import open_store
from tests.gateway.serving import SPEECH
from tests.gateway.sine_engine import SineEngine


def test_metrics_and_nothing_else_without_a_key() -> None:
    async def scrape() -> None:
        with listen("127.0.0.1", 0, 10.0) as listener:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            async with (
                answer_scrapers(Metrics([SineEngine()]), listener),
                httpx.AsyncClient(base_url=url) as client,
            ):
                answer = await client.get("/metrics")
                assert 'cosyserve_slots{model="sine"} 8.0' in answer.text
                assert answer.headers["content-type"].startswith("text/plain; version=")
                for path in ("/", "/health", "/v1/models", "/docs", SPEECH):
                    assert (await client.get(path)).status_code == 404
                assert (await client.post("/metrics")).status_code == 405
            with pytest.raises(httpx.ConnectError):
                await httpx.AsyncClient(base_url=url).get("/metrics")

    asyncio.run(scrape())


def test_the_server_answers_on_both_ports_until_its_end(tmp_path: Path) -> None:
    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with socket.create_server(("127.0.0.1", 0)) as free:
            metrics_port = free.getsockname()[1]
        engine, limits = SineEngine(), Limits.of(Settings())
        store = open_store(str(tmp_path))
        serving = asyncio.create_task(
            serve(
                engine, store, "127.0.0.1", port, limits, KeyRing(["k"]), doors=Doors(metrics_port)
            )
        )
        async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(retries=5)) as client:
            while True:
                try:
                    answer = await client.get(f"http://127.0.0.1:{metrics_port}/metrics")
                    refused = await client.get(f"http://127.0.0.1:{port}/metrics")
                    break
                except httpx.ConnectError:
                    assert not serving.done()
                    await asyncio.sleep(0.02)
        assert (answer.status_code, refused.status_code) == (200, 401)
        serving.cancel()
        await asyncio.wait([serving])
        assert engine.closed

    asyncio.run(run())


def test_a_port_that_is_taken_is_named_by_its_option(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        store, limits = open_store(str(tmp_path)), Limits.of(Settings())
        serving = serve(SineEngine(), store, "127.0.0.1", 0, limits, doors=Doors(port))
        with pytest.raises(InputError, match=f"port {port}: .* with --metrics-port"):
            asyncio.run(serving)
