"""A worker as a Ray actor: Ray finds it a place, and it is as one on this machine otherwise.

Requests and audio travel over a link, not through Ray: a chunk costs a write to a socket, text can
be pushed while it is spoken, and who leaves is told to the worker by the same message.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import msgspec
import ray
from ray.exceptions import RayError

from cosyserve.engine.workers.client import WorkerEngine
from cosyserve.engine.workers.options import WorkerOptions
from cosyserve.ray.links import Links, Streams, connect
from cosyserve.version import __version__


@dataclass(frozen=True)
class Share:
    """What a worker takes of a node."""

    gpus: float
    cpus: float

    def __str__(self) -> str:
        return f"{self.gpus:g} GPUs and {self.cpus:g} CPUs"


class WorkerActor:
    """What Ray runs on a node. The first who calls it stays until the worker ends."""

    def work(self, version: str, options: bytes, gateway: tuple[str, int], token: bytes) -> None:
        if version != __version__:
            raise RuntimeError(f"the node has cosyserve {__version__}, the gateway {version}")
        from cosyserve.engine.workers.worker import work  # torch is for nodes alone

        work(connect(gateway, token), msgspec.json.decode(options, type=WorkerOptions))


class RayWorker(WorkerEngine):
    """One worker of a cluster. Implements `contracts.Engine`."""

    def __init__(self, options: WorkerOptions, share: Share, links: Links) -> None:
        super().__init__(options)
        self._share, self._links = share, links
        self._host = ""  # of the node, while the worker lives

    @property
    def name(self) -> str:
        return f"worker on {self._host or 'no node yet'}"

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncGenerator[Streams, None]:
        self._host = ""
        with self._links.expected() as (token, arrived):
            # Calls of Ray's may wait for its head node, and nobody else must.
            try:
                actor, work = await asyncio.to_thread(self._place, token)
            except RayError as error:
                raise ConnectionError(f"Ray places no worker: {error}") from error
            try:
                life = asyncio.wrap_future(work.future())
                # Ray may know of a death before the link does.
                life.add_done_callback(lambda life: _hang_up(life, arrived))
                await asyncio.wait((arrived, life), return_when=asyncio.FIRST_COMPLETED)
                if not arrived.done():
                    raise ConnectionError(_reason(life))
                reader, writer = arrived.result()
                self._host = writer.get_extra_info("peername")[0]
                yield reader, writer
            finally:
                with contextlib.suppress(RayError):
                    await asyncio.to_thread(ray.kill, actor)

    def _place(self, token: bytes) -> tuple[Any, Any]:
        """A new actor, which waits for a node with room, and the task that is its life."""
        share = {"num_gpus": self._share.gpus, "num_cpus": self._share.cpus}
        actor = ray.remote(WorkerActor).options(**share).remote()
        options = msgspec.json.encode(self.options)
        return actor, actor.work.remote(__version__, options, self._links.address, token)


def _hang_up(life: asyncio.Future[None], arrived: asyncio.Future[Streams]) -> None:
    if not life.cancelled():
        life.exception()  # an actor that ends is no surprise to anybody
    if arrived.done() and not arrived.cancelled():
        arrived.result()[1].transport.abort()


def _reason(life: asyncio.Future[None]) -> str:
    """The last line of what Ray says of a death."""
    lines = str(life.exception() or "it ended before it spoke").strip().splitlines()
    return lines[-1]
