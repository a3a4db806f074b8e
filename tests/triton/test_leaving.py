"""Processes of models leave at once, and leave nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from cosyserve.triton.process import SHARED_MEMORY, answers
from tests.triton.server import Served, serving
from tests.waiting import START_PATIENCE, wait_until

LEAVING = """
import atexit, sys
from cosyserve.triton.models.instance.leaving import LeavesAtOnce
atexit.register(print, "taken apart")
LeavesAtOnce().finalize()
print("Triton is done", flush=True)
sys.exit(3)
"""


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One model of each kind: of batches, and of many requests at once."""
    models = ["speaker_embedding", "token2wav"]
    with serving(tmp_path_factory.mktemp("leaving"), models=models) as server:
        yield server


def regions(server: Served) -> list[Path]:
    """What the server and its processes share at this moment."""
    return list(SHARED_MEMORY.glob(f"{server.process._regions}*"))


def test_python_is_not_taken_apart() -> None:
    done = subprocess.run([sys.executable, "-c", LEAVING], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "Triton is done\n")


def test_a_model_that_is_unloaded_leaves_nothing(both: Served) -> None:
    assert (len(both.process.stubs()), len(regions(both))) == (2, 2)
    url = f"http://{both.http}/v2/repository/models/token2wav/unload"
    urllib.request.urlopen(urllib.request.Request(url, b"{}"), timeout=30).close()
    wait_until(lambda: len(regions(both)) == 1, "the region is still there", START_PATIENCE)
    wait_until(lambda: len(both.process.stubs()) == 1, "its process is still there", START_PATIENCE)
    (left,) = both.process.stubs()
    assert left.startswith("speaker_embedding/")
    assert answers(f"http://{both.http}/v2/models/speaker_embedding/ready")


def test_a_server_that_stops_leaves_nothing(both: Served) -> None:
    process = both.process.process
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert regions(both) == []
    assert "non-graceful" not in both.process.log.read_text().lower()
