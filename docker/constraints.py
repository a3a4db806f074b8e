"""Prints our versions of constraints.txt, the first argument; of what TensorRT-LLM was built with,
those that are installed here."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

KEPT = frozenset({"torch", "triton", "numpy", "tokenizers", "huggingface-hub"})


def constraints(file: Path) -> list[str]:
    lines = []
    for line in file.read_text("utf-8").splitlines():
        name = line.partition("==")[0].lower().replace("_", "-")
        lines.append(f"{name}=={version(name)}" if name in KEPT and _is_here(name) else line)
    return lines


def _is_here(name: str) -> bool:
    try:
        return bool(version(name))
    except PackageNotFoundError:
        return False


if __name__ == "__main__":
    print(*constraints(Path(sys.argv[1])), sep="\n")
