"""Prints what pyproject.toml, the first argument, says that the server needs; what is behind it
are further requirements. A layer made of it stays the same while only code changes."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

EXTRAS = ("server", "otel", "wyoming")


def requirements(pyproject: Path) -> list[str]:
    project = tomllib.loads(pyproject.read_text("utf-8"))["project"]
    optional = project["optional-dependencies"]
    return [*project["dependencies"], *(line for extra in EXTRAS for line in optional[extra])]


if __name__ == "__main__":
    print(*requirements(Path(sys.argv[1])), *sys.argv[2:], sep="\n")
