"""The process of a tritonserver, with a shell script in its place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cosyserve.triton.process import Ports, TritonProcess

VARIABLE = "OPENBLAS_NUM_THREADS"


@pytest.mark.parametrize(("given", "threads"), [("", "1"), ("4", "4")])
def test_numpy_has_one_thread_unless_somebody_asks_for_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, threads: str
) -> None:
    program = tmp_path / "tritonserver"
    program.write_text(f"#!/bin/sh\necho ${VARIABLE}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    if given:
        monkeypatch.setenv(VARIABLE, given)
    else:
        monkeypatch.delenv(VARIABLE, raising=False)
    with TritonProcess(tmp_path, Ports.free()) as server:
        server.process.wait()
        assert server.tail() == threads
