"""Many conversations at once, dialect by dialect, and whether the server is idle afterwards."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from random import Random

import httpx

from cosyserve.bench.client import Endpoint
from cosyserve.bench.items import Sentences, read_items
from cosyserve.bench.live.conversation import Conversation, Turn
from cosyserve.bench.live.dialects import DIALECTS
from cosyserve.bench.live.report import LiveOptions, LiveReport, live_figures
from cosyserve.bench.report.report import this_host
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
    whole = await _spoken_whole(options, [turn for talk in turns.values() for turn in talk])
    return LiveReport(
        version=__version__,
        started=started,
        options=options,
        host=this_host(),
        figures={name: live_figures(turns[name], whole) for name in turns},
        left=await sessions_left(options.endpoint),
    )


async def _talk(options: LiveOptions, name: str, advance: Callable[[], None]) -> list[Turn]:
    items = read_items(Sentences(options.language), options.conversations * options.turns)
    begun, places = time.perf_counter(), asyncio.Semaphore(options.concurrency)

    async def converse(number: int) -> Sequence[Turn]:
        random = Random(f"{options.seed} {number}")  # the same in every dialect
        mine = items[number * options.turns : (number + 1) * options.turns]
        dialect = DIALECTS[name]()
        async with places:
            talk = Conversation(options.endpoint, dialect, options.talker, random, begun)
            turns = await talk.run(mine)
        advance()
        return turns

    conversations = await asyncio.gather(*map(converse, range(options.conversations)))
    return [turn for turns in conversations for turn in turns]


async def _spoken_whole(options: LiveOptions, turns: Sequence[Turn]) -> dict[str, Turn]:
    """The interrupted texts once more, to their ends: when each of their words is heard.

    The same text is the same speech, so that these are the times of what was interrupted, too.
    """
    told = [turn for turn in turns if turn.stopped is not None and turn.spoken is not None]
    wanted = {turn.sample.id for turn in told}
    items = read_items(Sentences(options.language), options.conversations * options.turns)
    ours, talker = DIALECTS["ours"](), replace(options.talker, interrupts=0.0)
    talk = Conversation(options.endpoint, ours, talker, Random(0), time.perf_counter())
    spoken = [item for item in {item.id: item for item in items}.values() if item.id in wanted]
    found = await talk.run(spoken) if spoken else []
    return {turn.sample.id: turn for turn in found if not turn.sample.failure}


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
