"""Listeners ask when they should, hear gaps, and fail alone; ways of serving are compared."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from benchmarks.gpu.listeners import TOKENS_PER_LETTER, Ask, Heard, _crowd, over_http, summary
from benchmarks.gpu.triton import WAYS, table


class Humming:
    """Answers a text with as much audio as it says, in two pieces; it has seen how many at once."""

    def __init__(self, broken: str = "") -> None:
        self.texts: list[str] = []
        self.voices: set[str] = set()
        self.running = self.most = 0
        self._broken = broken

    async def ask(self, text: str, voice: str, seed: int) -> AsyncGenerator[float, None]:
        self.texts.append(text)
        self.voices.add(voice)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(0.005)
            if voice == self._broken:
                raise OSError("429")
            for _ in range(2):
                yield len(text) * TOKENS_PER_LETTER / 25 / 2
        finally:
            self.running -= 1


def crowd(ask: Ask, listeners: int, streams: int) -> Heard:
    return asyncio.run(_crowd(ask, listeners, streams, 0.4, 0.8))


def test_one_listener_asks_for_one_after_another() -> None:
    server = Humming()
    heard = crowd(server.ask, 1, 5)
    assert (len(heard), server.most) == (5, 1)
    assert all(0.4 <= one["seconds"] <= 0.8 for one in heard)
    assert all(one["first_ms"] >= 5 for one in heard)


def test_as_many_as_there_are_streams_ask_at_once() -> None:
    server = Humming()
    assert len(crowd(server.ask, 6, 6)) == 6
    assert server.most == 6
    assert server.voices == {f"voice{number}" for number in range(4)}


def test_crowds_ask_the_same_texts_of_every_server() -> None:
    one, other = Humming(), Humming()
    crowd(one.ask, 100, 120)
    crowd(other.ask, 100, 120)
    assert sorted(one.texts) == sorted(other.texts)
    assert len(set(one.texts)) > 100


def test_who_fails_is_counted_and_takes_nobody_along(capsys: pytest.CaptureFixture[str]) -> None:
    heard = crowd(Humming(broken="voice1").ask, 8, 8)
    assert summary(heard, 8)["failures"] == 2
    assert summary(heard, 8)["c100"] == 0.75
    assert capsys.readouterr().err.count("429") == 2


def test_gaps_and_late_firsts_are_summed_up() -> None:
    heard = [{"first_ms": float(ms), "underrun_s": 0.2 if ms > 90 else 0.1} for ms in range(101)]
    found = summary(heard, 101)
    assert found == {
        "first_audio_p50_ms": 50.0,
        "first_audio_p95_ms": 95.0,
        "c100": pytest.approx(91 / 101),
        "failures": 0,
    }


def test_pieces_are_heard_over_http() -> None:
    """Also those that a socket splits; an answer that is no speech is an error with its reason."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().split(b"content-length:")[1].split()[0])
        if b"voice9" in await reader.readexactly(size):
            writer.write(b"HTTP/1.1 404 Not Found\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + b"5dc0\r\n" + bytes(10_000))
            await writer.drain()
            writer.write(bytes(14_000) + b"\r\n0\r\n\r\n")
        writer.close()

    async def heard(voice: str) -> list[float]:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            ask = over_http(f"http://127.0.0.1:{port}")
            return [seconds async for seconds in ask("abc", voice, 1)]

    assert asyncio.run(heard("voice0")) == [0.5]
    with pytest.raises(OSError, match="404"):
        asyncio.run(heard("voice9"))


def way(ms: float, **more: Any) -> dict[str, Any]:
    crowd = {"first_audio_p50_ms": ms, "first_audio_p95_ms": 2 * ms, "c100": 0.0, "failures": 1}
    return {"slots": 8, "ready_s": 20.0, "alone": crowd, "at_once": crowd, **more}


def test_the_table_has_ratios_to_the_first_way() -> None:
    memory = {"memory_gib": {"at_rest": 10.0, "full": 20.0}}
    ways = {"worker": way(20.0, **memory), "triton": way(30.0, **memory)}
    assert set(ways) < set(WAYS)
    told = StringIO()
    Console(file=told, width=120).print(table(ways, "GPU"))
    cells = (re.split(r" *│ *", line)[1:-1] for line in told.getvalue().splitlines())
    rows = {name: values for name, *values in filter(None, cells)}
    assert rows["alone: first audio p50, ms"] == ["20.0", "30.0 (1.50 ×)"]
    assert rows["at_once: first audio p95, ms"] == ["40.0", "60.0 (1.50 ×)"]
    assert rows["alone: no gap above 100 ms"] == ["0.0%", "0.0%"]
    assert rows["GPU memory, full, GiB"] == ["20.0", "20.0 (1.00 ×)"]


def test_a_crowd_that_one_way_lacks_is_left_out() -> None:
    told = StringIO()
    ways = {"worker": way(20.0, **{"32": way(1.0)["alone"]}), "devices": way(20.0)}
    Console(file=told, width=120).print(table(ways, "GPU"))
    assert "32:" not in told.getvalue()
    assert "memory" not in told.getvalue()
