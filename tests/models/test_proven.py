"""The note of what has passed is out of date with any change."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.proven_kernels import ROOT, SOURCES, digest

CHANGED = [
    "src/cosyserve/models/lm/kernels/draw.py",
    "src/cosyserve/engine/compute/lm_graphs.py",
    "src/cosyserve/contracts.py",
    "tests/models/lm/test_fused.py",
    "constraints.txt",
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sources")
    for folder in SOURCES:
        shutil.copytree(ROOT / folder, root / folder)
    for file in ("src/cosyserve/contracts.py", "constraints.txt"):
        shutil.copy(ROOT / file, root / file)
    return root


def test_a_copy_is_the_same(copy: Path) -> None:
    assert digest(copy) == digest()


@pytest.mark.parametrize("name", CHANGED)
def test_any_change_is_seen(copy: Path, name: str) -> None:
    before, file = digest(copy), copy / name
    text = file.read_text()
    file.write_text(text.replace("\ntorch==", "\ntorch==0") + "\n# changed\n")
    assert digest(copy) != before
    file.write_text(text)
    assert digest(copy) == before
