"""Whether tests that take minutes, and all that they try, are those that have passed.

They have the same outcome for the same sources, so `make test` skips them until a source changes.
`make kernels` and `make recipes` run them and note what has passed.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]
SOURCES = {
    "kernels": (
        *("src/cosyserve/models", "src/cosyserve/engine/compute"),
        *("tests/models", "tests/engine/compute", "benchmarks/gpu", "tests/benchmarks"),
    ),
    "recipes": ("training", "tests/training", "src/cosyserve/models", "src/cosyserve/checkpoints"),
}
VERSIONS = re.compile(r"^(torch|triton|numpy)==.*$", re.MULTILINE)


def note(tier: str) -> Path:
    return ROOT / "tests" / f"proven_{tier}.sha256"


def digest(tier: str, root: Path = ROOT) -> str:
    """Of the sources, and of the versions that run them."""
    found = hashlib.sha256()
    files = (file for folder in SOURCES[tier] for file in (root / folder).rglob("*.py"))
    for file in sorted((*files, root / "src" / "cosyserve" / "contracts.py")):
        found.update(f"{file.relative_to(root)}\n".encode() + file.read_bytes())
    for line in VERSIONS.finditer((root / "constraints.txt").read_text("utf-8")):
        found.update(line.group().encode())
    return found.hexdigest()


def proven(tier: str) -> bool:
    """A GPU compiles kernels, which is another matter, and quick."""
    if torch.cuda.is_available() or "PROVE" in os.environ or not note(tier).exists():
        return False
    return note(tier).read_text("utf-8").strip() == digest(tier)


if __name__ == "__main__":
    note(sys.argv[1]).write_text(digest(sys.argv[1]) + "\n", "utf-8")
