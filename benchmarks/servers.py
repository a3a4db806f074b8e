"""Servers to measure, each in its own process, and what the system knows of a process."""

from __future__ import annotations

import contextlib
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
from typing import IO, Any

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
    def own_bytes(self) -> int:
        """That are in memory and shared with nobody."""
        text = Path(f"/proc/{self.pid}/smaps_rollup").read_text()
        return 1024 * sum(map(int, re.findall(r"^Private_\w+: +(\d+)", text, re.MULTILINE)))

    @property
    def files(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    @property
    def threads(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/task").iterdir()))

    @property
    def shared_memory(self) -> int:
        """Files of /dev/shm that it has in memory."""
        text = Path(f"/proc/{self.pid}/maps").read_text()
        return len(set(re.findall(r"/dev/shm/\S+", text)))

    @property
    def name(self) -> str:
        """The module that it runs."""
        words = Path(f"/proc/{self.pid}/cmdline").read_text().split("\0")
        return next((word for word in words if word.startswith("cosyserve")), words[0])

    def descendants(self) -> list[Process]:
        """The processes that it started, those that these started, and so on."""
        parents: dict[int, list[int]] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                parent = int(stat.read_text().rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(stat.parent.name))
        found, new = [], [self.pid]
        while new := [child for pid in new for child in parents.get(pid, ())]:
            found += new
        return [Process(pid) for pid in found]

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
def running(
    *command: str,
    log: IO[str] | int | None = subprocess.DEVNULL,
    checkout: Path | None = None,
    **settings: str,
) -> Iterator[Server]:
    """`python -m` with these words; it prints where it listens. Settings lack their prefix; a `log`
    that is None goes where ours does. A `checkout` is another one of this repository to run."""
    with tempfile.TemporaryDirectory() as home:
        given = {f"COSYSERVE_{name.upper()}": value for name, value in settings.items()}
        env = os.environ | {"COSYSERVE_HOME": home, "COSYSERVE_THREADS": "1"} | given
        if checkout:
            env["PYTHONPATH"] = str(checkout.absolute() / "src")
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=checkout,
            env=env,
            stdout=subprocess.PIPE,
            stderr=log,
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


def served(log: IO[str] | int | None = subprocess.DEVNULL, **settings: str) -> Any:
    """`cosyserve serve`, with the test model unless another is given."""
    words = "cosyserve", "serve", "--port", "0"
    return running(*words, log=log, checkout=None, **{"model": "test"} | settings)


def humming(
    chunks: int, tokens: int, first: float, pace: float, checkout: Path | None = None
) -> Any:
    """The gateway before a worker that hums."""
    words = map(str, (chunks, tokens, first, pace))
    return running("benchmarks.mock_server", *words, checkout=checkout)


def paced() -> Any:
    """Gateway and scheduler before a model that only takes its time."""
    return running("benchmarks.paced_server")


def bench(server: Server, *options: str) -> dict[str, Any]:
    """The report of `cosyserve bench load`."""
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/report.json"
        command = [sys.executable, "-m", "cosyserve", "bench", "load", "--url", server.url]
        subprocess.run([*command, *options, "--json", file], stdout=subprocess.DEVNULL, check=True)
        report: dict[str, Any] = json.loads(Path(file).read_text())
    return report
