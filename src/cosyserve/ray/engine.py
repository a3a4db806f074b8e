"""Workers of a Ray cluster as one engine: as many as are needed, each where Ray finds room.

A node that dies takes its streams along, with a `WorkerError`; its workers are placed anew, and a
request without any audio yet goes to another one. All workers belong to this gateway and end with
it. It imports no torch.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time

import ray
from ray.util import get_node_ip_address

from cosyserve.contracts import EngineStats, ModelInfo
from cosyserve.engine.workers.options import WorkerOptions
from cosyserve.engine.workers.pool import WorkerPool
from cosyserve.errors import InputError, WorkerError
from cosyserve.ray.autoscale import Autoscaler
from cosyserve.ray.links import Links
from cosyserve.ray.worker import RayWorker, Share

ADJUST_SECONDS = 0.5
WARN_SECONDS = 20.0  # without any worker, at the start
START_SECONDS = 900.0  # for the first worker: a cluster may have to rent a machine first

log = logging.getLogger(__name__)


class RayEngine(WorkerPool[RayWorker]):
    """Implements `contracts.Engine`."""

    def __init__(self, options: WorkerOptions, share: Share, scale: Autoscaler) -> None:
        super().__init__([])
        self._options, self._share, self._scale = options, share, scale
        self._links = Links()
        self._leaving: list[RayWorker] = []  # they finish what they have
        self._left = EngineStats(ready=False, waiting=0, running=0)  # totals of those who left
        self._starts: dict[RayWorker, asyncio.Task[None]] = {}
        self._info: ModelInfo | None = None
        self._adjusting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns when the first worker is ready; a model that can't be loaded is an error."""
        await asyncio.to_thread(_join_cluster)
        await self._links.listen(get_node_ip_address())
        for _ in range(self._scale.least):
            self._add()
        starts = set(self._starts.values())
        done, _ = await asyncio.wait(starts, timeout=WARN_SECONDS, return_when="FIRST_COMPLETED")
        if not done:
            log.warning("no worker has started yet: %s", await asyncio.to_thread(self._room))
            done, _ = await asyncio.wait(
                starts, timeout=START_SECONDS, return_when="FIRST_COMPLETED"
            )
        if not done:
            room = await asyncio.to_thread(self._room)
            raise WorkerError(f"no worker after {START_SECONDS:.0f} s: {room}")
        for start in done:
            start.result()
        self._info = next(worker for worker in self.workers if worker.ready).model
        self._adjusting = asyncio.create_task(self._keep_adjusting())

    @property
    def model(self) -> ModelInfo:
        if self._info is None:
            raise WorkerError("no worker has been ready yet")
        return self._info

    def stats(self) -> EngineStats:
        workers = (*self.workers, *self._leaving)
        return sum((worker.stats() for worker in workers), self._left)

    async def close(self) -> None:
        if self._adjusting:
            self._adjusting.cancel()
            await asyncio.wait([self._adjusting])
        for start in self._starts.values():
            start.cancel()
        workers = (*self.workers, *self._leaving)
        await asyncio.gather(*(worker.close() for worker in workers))
        await self._links.close()
        await asyncio.to_thread(ray.shutdown)

    async def _keep_adjusting(self) -> None:
        while True:
            await asyncio.sleep(ADJUST_SECONDS)
            try:
                await self.adjust(time.monotonic())
            except Exception:  # the next time it may be better
                log.exception("the number of workers can't be adjusted")

    async def adjust(self, now: float) -> None:
        """As many workers as are needed. Who is too many takes no new request, and ends when it
        has none."""
        for worker in [one for one in self.workers if _has_failed(self._starts[one])]:
            self.workers.remove(worker)  # another one is added for it
            await self._end(worker)
        everybody = (*self.workers, *self._leaving)
        slots = max((worker.stats().slots for worker in everybody), default=0)
        wanted = self._scale.wanted(sum(worker.load for worker in everybody), slots, now)
        while len(self.workers) < wanted:
            if self._leaving:
                self.workers.append(self._leaving.pop())
            else:
                self._add()
        while len(self.workers) > wanted:
            idle = min(self.workers, key=lambda worker: (worker.ready, worker.load))
            self.workers.remove(idle)
            self._leaving.append(idle)
        for worker in [worker for worker in self._leaving if not worker.load]:
            self._leaving.remove(worker)
            self._left += worker.stats().totals
            log.info("%s is not needed any more", worker.name)
            await self._end(worker)

    def _add(self) -> None:
        worker = RayWorker(self._options, self._share, self._links)
        self.workers.append(worker)
        self._starts[worker] = start = asyncio.create_task(worker.start())
        start.add_done_callback(_tell)

    async def _end(self, worker: RayWorker) -> None:
        self._starts.pop(worker).cancel()
        await worker.close()

    def _room(self) -> str:
        """What a worker wants, and what the cluster has."""
        free, all_ = ray.available_resources(), ray.cluster_resources()
        has = ", ".join(f"{free.get(k, 0):g} of {all_.get(k, 0):g} {k}s" for k in ("GPU", "CPU"))
        return f"a worker takes {self._share}; free in the cluster are {has}"


def _tell(start: asyncio.Task[None]) -> None:
    if _has_failed(start):
        log.error("a worker can't be started: %s", start.exception())


def _has_failed(start: asyncio.Task[None]) -> bool:
    return start.done() and not start.cancelled() and start.exception() is not None


def _join_cluster() -> None:
    if os.environ.get("RAY_ADDRESS", "").startswith("ray://"):
        raise InputError("RAY_ADDRESS is of Ray Client: start the gateway on a node of the cluster")
    try:
        ray.init("auto", logging_level=logging.WARNING, configure_logging=False)
    except ConnectionError as error:
        raise InputError(
            "no Ray cluster is found: start one with `ray start --head`, join one with "
            "`ray start --address=HEAD:6379`, or set RAY_ADDRESS"
        ) from error
