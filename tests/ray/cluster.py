"""A real Ray cluster of two nodes on this machine, for whoever has Ray."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

STARTS = 4  # of a node, before it is given up
CPUS = 1  # of a node: room for one worker
# A busy machine takes its time to start a node, and nobody outside is to be told of it.
PATIENCE = {
    "RAY_agent_register_timeout_ms": "180000",
    "RAY_raylet_start_wait_time_s": "40",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def ports() -> dict[str, int]:
    """Of a node's agents, which need not look for some then."""
    agents = "metrics_agent", "metrics_export", "dashboard_agent_listen", "runtime_env_agent"
    with contextlib.ExitStack() as held:
        taken = [held.enter_context(socket.create_server(("", 0))) for _ in agents]
        found = [listener.getsockname()[1] for listener in taken]
    return {f"{agent}_port": port for agent, port in zip(agents, found, strict=True)}


def children(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
    return found


def patiently(start: Callable[[], Any]) -> Any:
    """A node ends if its agents take longer than 15 seconds, and they do on a busy machine."""
    for _ in range(STARTS - 1):
        with contextlib.suppress(Exception):  # Ray's own, which has no other name
            return start()
    return start()


class TwoNodes:
    """Nodes of their own for workers; the head, where gateways are, has no room."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "include_dashboard": False}
        self._cluster = Cluster()
        patiently(lambda: self._cluster.add_node(**head, **ports()))
        self._nodes: list[Any] = []
        for _ in range(2):
            self.add_node()
        self.address: str = self._cluster.address

    def add_node(self) -> None:
        self._nodes.append(
            patiently(lambda: self._cluster.add_node(num_cpus=CPUS, **ports())),
        )

    def kill_node(self) -> None:
        """All of its processes at once, as when a machine loses its power."""
        node = self._nodes.pop()
        for pid in children(node.all_processes["raylet"][0].process.pid):
            os.kill(pid, signal.SIGKILL)
        self._cluster.remove_node(node, allow_graceful=False)

    def end(self) -> None:
        self._cluster.shutdown()


@contextlib.contextmanager
def two_nodes() -> Iterator[TwoNodes]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in PATIENCE.items():
            patch.setenv(name, os.environ.get(name, value))
        pytest.importorskip("ray", reason="no Ray: `make test-ray` installs it")
        cluster = TwoNodes()
        patch.setenv("RAY_ADDRESS", cluster.address)
        try:
            yield cluster
        finally:
            cluster.end()
