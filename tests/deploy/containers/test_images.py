"""Dockerfiles: hadolint, and what hadolint does not know."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from cosyserve.deploy.containers.stack import PORT, Stack
from cosyserve.deploy.stages.either_flow import TRTLLM_ADVICE
from cosyserve.version import __version__
from tests.gateway.serving import serving

ROOT = Path(__file__).parents[3]
FILES = [ROOT / "docker" / "Dockerfile", ROOT / "docker" / "Dockerfile.triton"]
HADOLINT = shutil.which("hadolint", path=str(Path(sys.executable).parent))


def instructions(file: Path) -> list[str]:
    """Each instruction on one line, without comments."""
    lines = [line for line in file.read_text("utf-8").splitlines() if not line.startswith("#")]
    return "\n".join(lines).replace("\\\n", " ").split("\n")


def last(file: Path, word: str) -> str:
    return [line for line in instructions(file) if line.startswith(f"{word} ")][-1]


@pytest.mark.server
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_hadolint_has_no_complaint(file: Path) -> None:
    if HADOLINT is None:
        pytest.skip("hadolint is not here: pip install 'cosyserve[containers]'")
    done = subprocess.run([HADOLINT, str(file)], capture_output=True, text=True)
    assert done.stdout == ""
    assert done.returncode == 0


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_an_image_is_pinned_and_runs_as_nobody_special(file: Path) -> None:
    (image,) = re.findall(r"^ARG \w+_IMAGE=\S+:(\S+)$", file.read_text("utf-8"), re.MULTILINE)
    assert image[0].isdigit()
    assert last(file, "USER") == "USER 1000:1000"
    assert last(file, "STOPSIGNAL") == "STOPSIGNAL SIGTERM"
    assert "/ready" in last(file, "HEALTHCHECK")
    assert '"/var/lib/cosyserve"' in last(file, "VOLUME")
    started = json.loads(last(file, "ENTRYPOINT").removeprefix("ENTRYPOINT "))
    assert started[-1] == "cosyserve"
    assert not re.search(r"git clone|curl|wget|ADD http", file.read_text("utf-8"))


def test_names_are_those_that_are_deployed() -> None:
    built = set(re.findall(r"-t (\S+)", "".join(file.read_text("utf-8") for file in FILES)))
    assert built == {Stack().image_name(kind) for kind in ("cpu", "cuda", "triton")}
    assert __version__ in next(iter(built))
    assert f"EXPOSE {PORT}" in FILES[0].read_text("utf-8")
    (triton,) = re.findall(r"TRITON_IMAGE=(\S+)", FILES[1].read_text("utf-8"))
    assert triton in TRTLLM_ADVICE


def test_everything_that_is_copied_is_let_in() -> None:
    let_in = [
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines()
        if line.startswith("!")
    ]
    for file in FILES:
        for line in instructions(file):
            if line.startswith("COPY ") and "--from" not in line:
                sources = line.split()[1:-1]
                assert set(sources) <= set(let_in), line
                assert all((ROOT / source).exists() for source in sources)


@pytest.fixture
def run() -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(script: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", "-S", str(ROOT / "docker" / script), *words]
        return subprocess.run(command, capture_output=True, text=True)

    return run


@pytest.mark.server
def test_the_healthcheck_sees_what_is_ready(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    with serving() as server:
        assert run("healthcheck.py", f"{server.url}/ready").returncode == 0
        server.engine.ready = False
        assert run("healthcheck.py", f"{server.url}/ready").returncode == 1
    assert run("healthcheck.py", f"{server.url}/ready").returncode == 1


@pytest.mark.server
def test_the_image_asks_at_the_port_that_is_set() -> None:
    shell, option, script = json.loads(last(FILES[0], "HEALTHCHECK").partition("CMD ")[2])
    script = script.replace("python3 /opt/", f"{sys.executable} -I -S {ROOT / 'docker'}/")
    with serving() as server:
        port = server.url.rpartition(":")[2]
        for given, status in ((port, 0), ("1", 1)):
            done = subprocess.run([shell, option, script], env={"COSYSERVE_PORT": given})
            assert done.returncode == status


@pytest.mark.server
def test_requirements_are_those_of_the_server(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    printed = run("requirements.py", str(ROOT / "pyproject.toml"), "tritonclient[grpc]").stdout
    names = {re.split(r"[><=\[;]", line)[0] for line in printed.split("\n") if line}
    assert {"torch", "fastapi", "redis", "tritonclient"} <= names
    assert {"wyoming", "opentelemetry-sdk"} <= names
    assert not {"pytest", "nvidia-pytriton"} & names


@pytest.mark.server
def test_what_is_built_for_an_image_keeps_its_version(tmp_path: Path) -> None:
    file = tmp_path / "constraints.txt"
    file.write_text("# ours\nnumpy==0.1\nuvicorn==0.2\nTriton==99\n")
    script = str(ROOT / "docker" / "constraints.py")
    done = subprocess.run([sys.executable, script, str(file)], capture_output=True, text=True)
    here = {name: version(name) for name in ("numpy", "triton")}
    lines = ["# ours", f"numpy=={here['numpy']}", "uvicorn==0.2", f"triton=={here['triton']}"]
    assert done.stdout.splitlines() == lines
