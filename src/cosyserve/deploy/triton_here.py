"""A Triton server on this machine, from a model folder to its address."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cosyserve.deploy.triton_repository import render
from cosyserve.deploy.triton_settings import TritonSettings
from cosyserve.triton.keeper import TritonKeeper
from cosyserve.triton.process import Ports


@contextmanager
def triton_here(settings: TritonSettings) -> Iterator[str]:
    """Renders a repository and keeps a server on it, on free ports -> its triton:// address."""
    # Whoever is killed by SIGTERM leaves the server running: so SIGTERM is an exit, which ends it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="cosyserve-repository-") as folder:
        repository, ports = Path(folder) / "repository", Ports.free()
        render(settings.model_copy(update={"grpc": f"localhost:{ports.grpc}"}), repository)
        keeper = TritonKeeper(repository, ports)
        try:
            keeper.server.wait_ready()
            yield f"triton://127.0.0.1:{ports.grpc}"
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            keeper.stop()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
