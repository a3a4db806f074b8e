"""The note of what has passed is out of date with any change."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.proven import ROOT, SOURCES, digest

CHANGED = [
    "src/cosyserve/models/lm/kernels/draw.py",
    "src/cosyserve/engine/compute/graphs/lm.py",
    "src/cosyserve/contracts.py",
    "tests/models/lm/test_fused.py",
    "training/flow.py",
    "constraints.txt",
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sources")
    for folder in {folder for folders in SOURCES.values() for folder in folders}:
        code = shutil.ignore_patterns("[!._]*.[!p]*")
        shutil.copytree(ROOT / folder, root / folder, ignore=code)
    for file in ("src/cosyserve/contracts.py", "constraints.txt"):
        shutil.copy(ROOT / file, root / file)
    return root


def test_a_copy_is_the_same(copy: Path) -> None:
    assert all(digest(tier, copy) == digest(tier) for tier in SOURCES)


@pytest.mark.parametrize("name", CHANGED)
def test_any_change_is_seen(copy: Path, name: str) -> None:
    tier = "recipes" if name.startswith("training") else "kernels"
    before, file = digest(tier, copy), copy / name
    text = file.read_text()
    file.write_text(text.replace("\ntorch==", "\ntorch==0") + "\n# changed\n")
    assert digest(tier, copy) != before
    file.write_text(text)
    assert digest(tier, copy) == before
