"""Whether the kernels, and all that they are tested with, are those that have passed.

To interpret them takes minutes and has the same outcome for the same sources, so `make test` skips
them until a source changes. `make kernels` runs them and notes what has passed.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]
SOURCES = (
    "src/cosyserve/models",
    "src/cosyserve/engine/compute",
    "tests/models",
    "tests/engine/compute",
)
VERSIONS = re.compile(r"^(torch|triton|numpy)==.*$", re.MULTILINE)
NOTE = ROOT / "tests" / "models" / "proven.sha256"


def digest(root: Path = ROOT) -> str:
    """Of the sources, and of the versions that interpret them."""
    found = hashlib.sha256()
    files = (file for folder in SOURCES for file in (root / folder).rglob("*.py"))
    for file in sorted((*files, root / "src" / "cosyserve" / "contracts.py")):
        found.update(f"{file.relative_to(root)}\n".encode() + file.read_bytes())
    for line in VERSIONS.finditer((root / "constraints.txt").read_text("utf-8")):
        found.update(line.group().encode())
    return found.hexdigest()


def proven() -> bool:
    """A GPU compiles kernels, which is another matter, and quick."""
    if torch.cuda.is_available() or "PROVE_KERNELS" in os.environ or not NOTE.exists():
        return False
    return NOTE.read_text("utf-8").strip() == digest()


if __name__ == "__main__":
    NOTE.write_text(digest() + "\n", "utf-8")
