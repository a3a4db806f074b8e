"""Servers to measure, each in its own process, and what the system knows of a process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LISTENING = re.compile(r"listening on (http://\S+)")
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Process:
    pid: int

    @property
    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    @property
    def bytes(self) -> int:
        """That are in memory."""
        return PAGE * int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])

    @property
    def files(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def children(self, name: str) -> list[Process]:
        command = ["pgrep", "-P", str(self.pid), "-f", name]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        return [Process(int(line)) for line in found.stdout.split()]


@dataclass(frozen=True)
class Server:
    url: str
    gateway: Process

    @property
    def worker(self) -> Process:
        return self.gateway.children("worker")[0]


@contextmanager
def running(*command: str, **settings: str) -> Iterator[Server]:
    """`python -m` with these words; it prints where it listens. Settings lack their prefix."""
    with tempfile.TemporaryDirectory() as home:
        given = {f"COSYSERVE_{name.upper()}": value for name, value in settings.items()}
        env = os.environ | {"COSYSERVE_HOME": home, "COSYSERVE_THREADS": "1"} | given
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout
        try:
            found = LISTENING.search(process.stdout.readline())
            assert found, "the server does not start"
            yield Server(found.group(1), Process(process.pid))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)
            process.stdout.close()


def served(**settings: str) -> Any:
    """`cosyserve serve`, with the test model unless another is given."""
    return running("cosyserve", "serve", "--port", "0", **{"model": "test"} | settings)


def humming(chunks: int, tokens: int, first: float, pace: float) -> Any:
    """The gateway before a worker that hums."""
    return running("benchmarks.mock_server", *map(str, (chunks, tokens, first, pace)))


def paced() -> Any:
    """Gateway and scheduler before a model that only takes its time."""
    return running("benchmarks.paced_server")


def bench(server: Server, *options: str) -> dict[str, Any]:
    """The report of `cosyserve bench load`."""
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/report.json"
        command = [sys.executable, "-m", "cosyserve", "bench", "--url", server.url]
        subprocess.run([*command, *options, "--json", file], stdout=subprocess.DEVNULL, check=True)
        report: dict[str, Any] = json.loads(Path(file).read_text())
    return report
