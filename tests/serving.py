"""A real server in a process of its own, for tests that talk to one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import START_PATIENCE

LISTENING = re.compile(r"listening on (http://\S+)")


@contextmanager
def served(
    home: Path, *options: str, python: Path | None = None
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Address and process of `cosyserve serve` on a free port."""
    env = os.environ | {"COSYSERVE_HOME": str(home), "COSYSERVE_THREADS": "1"}
    command = [python or sys.executable, "-m", "cosyserve", "serve", "--port", "0", *options]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        address = LISTENING.search(process.stdout.readline())
        assert address, "the server did not start"
        yield address.group(1), process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=START_PATIENCE)
        process.stdout.close()
