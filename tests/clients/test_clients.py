"""Clients of the field, unchanged, against the gateway."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.serving import Running, serving

HERE = Path(__file__).parent
VENV = HERE.parents[1] / ".venv-clients"
PACKAGES = {
    "livekit": "livekit-plugins-openai",
    "pipecat": "pipecat-ai",
    "realtimetts": "realtimetts",
    "litellm": "litellm",
}


def installed() -> set[str]:
    folders = [str(folder) for folder in VENV.glob("lib/python3*/site-packages")]
    found = importlib.metadata.distributions(path=folders) if folders else ()
    return {package.metadata["Name"].lower() for package in found}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with serving() as running:
        yield running


@pytest.mark.parametrize("client", PACKAGES)
def test_the_client_hears_all_of_the_speech(client: str, server: Running) -> None:
    if PACKAGES[client] not in installed():
        pytest.skip(f"{PACKAGES[client]} is not installed: `make test-clients` does it")
    python, script = VENV / "bin" / "python", HERE / f"speak_{client}.py"
    command = [python, script, f"{server.url}/v1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=HERE)
    assert done.returncode == 0, done.stderr[-3000:]
    heard = json.loads(done.stdout.splitlines()[-1])
    assert heard == pytest.approx([1.6] * len(heard), abs=0.1)


def test_every_script_is_run() -> None:
    assert {file.stem.removeprefix("speak_") for file in HERE.glob("speak_*.py")} == set(PACKAGES)
