"""Many conversations at once, dialect by dialect, and whether the server is idle afterwards."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from random import Random

import httpx

from cosyserve.bench.client import Endpoint
from cosyserve.bench.items import Sentences, read_items
from cosyserve.bench.live.conversation import Conversation, Turn
from cosyserve.bench.live.dialects import DIALECTS
from cosyserve.bench.live.report import LiveOptions, LiveReport, live_figures
from cosyserve.bench.report import this_host
from cosyserve.bench.run import progress_bar
from cosyserve.version import __version__

IDLE_SECONDS = 5.0  # that a server has to clear up
COUNTS = ("cosyserve_running", "cosyserve_waiting", "cosyserve_connections")


async def run_live(options: LiveOptions) -> LiveReport:
    """Talks in one dialect after the other. On a terminal, a bar shows how far it is."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    async with aclosing(options.endpoint.client()) as client:
        await client.check_server()
    with progress_bar() as bar:
        task = bar.add_task("conversations", total=options.conversations * len(options.dialects))
        turns = {
            name: await _talk(options, name, lambda: bar.advance(task)) for name in options.dialects
        }
    return LiveReport(
        version=__version__,
        started=started,
        options=options,
        host=this_host(),
        figures={name: live_figures(turns[name]) for name in turns},
        left=await sessions_left(options.endpoint),
    )


async def _talk(options: LiveOptions, name: str, advance: Callable[[], None]) -> list[Turn]:
    items = read_items(Sentences(options.language), options.conversations * options.turns)
    begun, places = time.perf_counter(), asyncio.Semaphore(options.concurrency)

    async def converse(number: int) -> Sequence[Turn]:
        random = Random(f"{options.seed} {name} {number}")
        mine = items[number * options.turns : (number + 1) * options.turns]
        dialect = DIALECTS[name]()
        async with places:
            talk = Conversation(options.endpoint, dialect, options.talker, random, begun)
            turns = await talk.run(mine)
        advance()
        return turns

    conversations = await asyncio.gather(*map(converse, range(options.conversations)))
    return [turn for turns in conversations for turn in turns]


async def sessions_left(endpoint: Endpoint) -> dict[str, int] | None:
    """What our server's metrics still count after a while; {}: it is idle. None: another server."""
    headers = {"Authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}
    until = time.perf_counter() + IDLE_SECONDS
    async with httpx.AsyncClient(headers=headers, timeout=IDLE_SECONDS) as http:
        while True:
            try:
                answer = await http.get(f"{endpoint.root}/metrics")
            except httpx.TransportError:
                return None
            counts = _counts(answer.text)
            if not counts:
                return None
            left = {name: count for name, count in counts.items() if count}
            if not left or time.perf_counter() > until:
                return left
            await asyncio.sleep(0.05)


def _counts(metrics: str) -> dict[str, int]:
    found = {name: re.findall(rf"^{name}\{{.*\}} (.*)$", metrics, re.MULTILINE) for name in COUNTS}
    return {name: int(sum(map(float, values))) for name, values in found.items() if values}
