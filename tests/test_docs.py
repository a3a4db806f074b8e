"""Every code block of the README and the docs is run, in a folder that has what they name."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cosyserve.audio import AudioFormat, encode
from tests.backends import llm_server
from tests.golden.test_golden import folder_with_one_case
from tests.serving import served

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    pytest.param(language, code, id=f"{page.name}-{number}")
    for page in PAGES
    for number, (language, code) in enumerate(BLOCK.findall(page.read_text("utf-8")), start=1)
]


@pytest.fixture
def workplace(tmp_path: Path, cosyvoice2_folder: Path) -> Path:
    """A model folder in the published layout and two recordings."""
    (tmp_path / "CosyVoice2-0.5B").symlink_to(cosyvoice2_folder)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    noise = np.random.default_rng(0).standard_normal(4 * 24_000).astype(np.float32) * 0.1
    for name in ("me.wav", "someone.wav"):
        (tmp_path / name).write_bytes(encode(noise, AudioFormat.WAV))
    return tmp_path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, programs: Path) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("server"), python=programs / "python") as (url, _):
        yield url


@pytest.fixture(scope="module")
def llm_url() -> Iterator[str]:
    with llm_server.serving(llm_server.says("<|s_1|><|s_2|>")) as running:
        yield running.url


def environment(home: Path, programs: Path) -> dict[str, str]:
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    one = {"COSYSERVE_THREADS": "1"}
    return os.environ | one | {"PATH": path, "COSYSERVE_HOME": str(home / "home"), "PYTHONPATH": ""}


@pytest.mark.parametrize(("language", "code"), BLOCKS)
def test_the_block_runs(
    language: str, code: str, workplace: Path, programs: Path, request: pytest.FixtureRequest
) -> None:
    env = environment(workplace, programs)
    if "localhost:8080" in code and "make " not in code:
        url = request.getfixturevalue("server")
        code = code.replace("http://localhost:8080", url)
        code = code.replace("ws://localhost:8080", url.replace("http", "ws", 1))
    if "http://localhost:8000/v1" in code:
        code = code.replace("http://localhost:8000/v1", request.getfixturevalue("llm_url"))
    if "cosyserve client" in code or "bench triton" in code:
        triton = request.getfixturevalue("scripted_triton")
        port = triton.grpc.rpartition(":")[2]
        code = re.sub(r"\b(8001|1800[12])\b", port, code.replace("localhost:8000", triton.http))
    if "cosyserve bench load" in code or "cosyserve bench live" in code:
        env["COSYSERVE_URL"] = request.getfixturevalue("server")
    if "tests/golden" in code:  # all of its cases are tests, too
        case = workplace / "case"
        case.mkdir()
        code = code.replace("verify.py tests/golden", f"verify.py {folder_with_one_case(case)}")
    if language == "python":
        program = programs / "python"
        subprocess.run([program, "-c", code], cwd=workplace, env=env, check=True)
        return
    assert language == "bash", f"a block of language {language!r} is not run by anybody"
    if "make " in code:  # would run this test again: see that make knows what to do
        targets = re.findall(r"^make (\w+)", code, re.MULTILINE)
        subprocess.run(["make", "--dry-run", *targets], cwd=ROOT, check=True)
        code = re.sub(r"^make .*$", "", code, flags=re.MULTILINE).replace(".venv/bin/", "")
    subprocess.run(["bash", "-euo", "pipefail", "-c", code], cwd=workplace, env=env, check=True)


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_table_of_blocks_is_not_empty() -> None:
    assert len(BLOCKS) >= 8
    assert shutil.which("make")
