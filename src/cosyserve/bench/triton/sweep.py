"""Several Triton servers at once: more and more of them, each with more and more tasks.

The original measures so how a token2wav that has GPUs of its own scales behind one LLM server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter
from rich.table import Table

from cosyserve.bench.figures import Figures, figures
from cosyserve.bench.items import Item, Source, read_items, repeated
from cosyserve.bench.load import ClosedLoop
from cosyserve.bench.report.table import NOTHING, number
from cosyserve.bench.run import progress_bar
from cosyserve.bench.sample import Sample
from cosyserve.bench.statistics import Distribution
from cosyserve.bench.triton.client import TritonEndpoint, TritonSpeechClient
from cosyserve.errors import InputError


@dataclass(frozen=True)
class Sweep:
    """Servers in the order of their GPUs, and how much of them is measured at a time."""

    servers: tuple[TritonEndpoint, ...]
    source: Source
    gpus: tuple[int, ...]  # numbers of GPUs
    tasks: tuple[int, ...]  # numbers of tasks per server
    instances_per_gpu: int = 1  # servers on a GPU
    llm_gpus: int = 1  # GPUs that none of the servers has

    def __post_init__(self) -> None:
        for name, values, least in (
            ("GPUs", self.gpus, 1),
            ("tasks", self.tasks, 1),
            ("servers per GPU", (self.instances_per_gpu,), 1),
            ("the LLM's GPUs", (self.llm_gpus,), 0),
        ):
            if not values or min(values) < least:
                raise InputError(f"the number of {name} must be at least {least}")
        if self.needed > len(self.servers):
            raise InputError(
                f"{max(self.gpus)} GPUs with {self.instances_per_gpu} servers each need "
                f"{self.needed} addresses, {len(self.servers)} are given"
            )

    @property
    def needed(self) -> int:
        """Servers that the largest run asks."""
        return max(self.gpus) * self.instances_per_gpu

    def tasks_per_gpu(self, gpus: int, tasks: int) -> float:
        """Requests at once per GPU, those of the LLM counted."""
        return tasks * self.instances_per_gpu * gpus / (gpus + self.llm_gpus)


@dataclass(frozen=True)
class SweepRow:
    """One run: so many GPUs, so many tasks for each of their servers."""

    gpus: int
    tasks_per_instance: int
    concurrent_task_per_gpu: float
    figures: Figures


async def run_sweep(sweep: Sweep) -> list[SweepRow]:
    """A run for each number of GPUs and tasks. Every server speaks all items in every run."""
    items = read_items(sweep.source)
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(aclosing(server.client()))
            for server in sweep.servers[: sweep.needed]
        ]
        for client in clients:
            await client.check_server()
        rows = []
        for gpus in sweep.gpus:
            for tasks in sweep.tasks:
                chosen = clients[: gpus * sweep.instances_per_gpu]
                samples = await _run(chosen, tasks, items, f"{gpus} GPUs, {tasks} tasks")
                share = sweep.tasks_per_gpu(gpus, tasks)
                rows.append(SweepRow(gpus, tasks, share, figures(samples)))
    return rows


async def _run(
    clients: Sequence[TritonSpeechClient], tasks: int, items: Sequence[Item], title: str
) -> list[Sample]:
    mine = repeated(items, max(len(items), tasks))
    with progress_bar() as bar:
        shown = bar.add_task(title, total=len(clients) * len(mine))

        async def ask(client: TritonSpeechClient) -> list[Sample]:
            async def send(item: Item) -> Sample:
                sample, _ = await client.speak(item)
                bar.advance(shown)
                return sample

            return await ClosedLoop(tasks).run(mine, send)

        answers = await asyncio.gather(*map(ask, clients))
    return [sample for answer in answers for sample in answer]


def sweep_table(rows: Sequence[SweepRow]) -> Table:
    table = Table(
        *("GPUs", "tasks per instance", "concurrent_task_per_gpu"),
        *("total p50 (ms)", "total p90 (ms)", "first chunk p50 (ms)", "first chunk p90 (ms)"),
        *("RTF", "failed"),
    )
    for column in table.columns:
        column.justify = "right"
    for row in rows:
        found = row.figures
        table.add_row(
            *(str(row.gpus), str(row.tasks_per_instance), number(row.concurrent_task_per_gpu)),
            *(*_milliseconds(found.total), *_milliseconds(found.first_audio)),
            *(number(found.rtf), str(found.requests - found.served)),
        )
    return table


def write_sweep(rows: Sequence[SweepRow], path: Path) -> None:
    data = TypeAdapter(list[SweepRow]).dump_json(list(rows), indent=1)
    try:
        path.write_bytes(data)
    except OSError as error:
        raise InputError(f"{path} can't be written: {error.strerror}") from error


def _milliseconds(spread: Distribution | None) -> tuple[str, str]:
    if spread is None:
        return NOTHING, NOTHING
    return number(1000 * spread.p50), number(1000 * spread.p90)
