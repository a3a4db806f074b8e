"""A real Ray cluster of two nodes on this machine, for whoever has Ray."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

CPUS = 1  # of a node: room for one worker
# A busy machine takes its time to start a node, and nobody outside is to be told of it.
PATIENCE = {
    "RAY_agent_register_timeout_ms": "180000",
    "RAY_raylet_start_wait_time_s": "120",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def ports() -> dict[str, int]:
    """Of a node's agents. Ray gives them 15 seconds to choose their own, and ends if they take
    longer."""
    agents = "metrics_agent", "metrics_export", "dashboard_agent_listen", "runtime_env_agent"
    with contextlib.ExitStack() as held:
        taken = [held.enter_context(socket.create_server(("", 0))) for _ in agents]
        found = [listener.getsockname()[1] for listener in taken]
    return {f"{agent}_port": port for agent, port in zip(agents, found, strict=True)}


class TwoNodes:
    """Nodes of their own for workers; the head, where gateways are, has no room."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "include_dashboard": False, **ports()}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self._nodes: list[Any] = []
        for _ in range(2):
            self.add_node()
        self.address: str = self._cluster.address

    def add_node(self) -> None:
        self._nodes.append(self._cluster.add_node(num_cpus=CPUS, **ports()))

    def kill_node(self) -> None:
        """All of its processes at once, as when a machine loses its power."""
        node = self._nodes.pop()
        raylet = str(node.all_processes["raylet"][0].process.pid)
        workers = subprocess.run(["pgrep", "-P", raylet], capture_output=True, text=True)
        for pid in workers.stdout.split():
            os.kill(int(pid), signal.SIGKILL)
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
