"""Hubs on this machine, and an environment that leads to no other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cosyserve.checkpoints.hub import http_file
from tests.checkpoints.hub.hub_server import PUBLISHED, REPO, UNREAD, Hub, Start, serve


@pytest.fixture
def start_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts a hub that has a published model, unless told otherwise."""
    for name in list(os.environ):
        if name.startswith(("HF_", "MODELSCOPE_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("MODELSCOPE_CACHE", str(tmp_path / "ms"))
    monkeypatch.setattr(http_file, "FIRST_PAUSE", 0.01)
    with ExitStack() as servers:
        yield lambda **has: servers.enter_context(
            serve(Hub(REPO, **({"files": PUBLISHED | UNREAD} | has)))
        )
