"""`cosyserve serve --triton`: renderer, server and gateway in one go, and all of it ends."""

from __future__ import annotations

import subprocess
from pathlib import Path

import httpx

from tests.serving import served


def descendants(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    children = [int(line) for line in found.stdout.split()]
    return children + [below for child in children for below in descendants(child)]


def test_one_command_serves_through_triton_and_ends(tmp_path: Path) -> None:
    with served(tmp_path, "--triton", "--set", "slots=2") as (url, process):
        started = descendants(process.pid)
        assert any("tritonserver" in Path(f"/proc/{pid}/cmdline").read_text() for pid in started)
        body = {"model": "test", "input": "One, two.", "voice": "default", "response_format": "pcm"}
        answer = httpx.post(f"{url}/v1/audio/speech", json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        assert len(answer.content) > 10_000
    assert process.returncode == 0
    assert [pid for pid in started if Path(f"/proc/{pid}").exists()] == []
