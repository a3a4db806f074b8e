"""Clients of the field, unchanged, against the gateway."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.serving import Running, serving

HERE = Path(__file__).parent
MAKEFILE = HERE.parents[1] / "Makefile"
VENVS = HERE.parents[1] / ".venv-clients"
CLIENTS = sorted(file.stem.removeprefix("speak_") for file in HERE.glob("speak_*.py"))


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with serving() as running:
        yield running


@pytest.mark.parametrize("client", CLIENTS)
def test_the_client_hears_all_of_the_speech(client: str, server: Running) -> None:
    python = VENVS / client / "bin" / "python"
    if not (VENVS / client / "packages").exists():  # which is written when all of it is there
        pytest.skip(f"{client} is not installed: `make test-clients` does it")
    command = [python, HERE / f"speak_{client}.py", f"{server.url}/v1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=VENVS)
    assert done.returncode == 0, done.stderr[-3000:]
    heard = json.loads(done.stdout.splitlines()[-1])
    assert heard == pytest.approx([1.6] * len(heard), abs=0.1)


def test_the_list_of_clients_is_that_of_make() -> None:
    listed = re.search(r"^CLIENTS := (.*)$", MAKEFILE.read_text("utf-8"), re.MULTILINE)
    assert listed
    assert sorted(pair.partition(":")[0] for pair in listed[1].split()) == CLIENTS
