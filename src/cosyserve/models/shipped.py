"""The small model inside the package, by its name. Knows no weights."""

from __future__ import annotations

from pathlib import Path

NAME = "nano"
FOLDER = Path(__file__).parents[1] / "nano"


def folder(model: str | Path) -> Path:
    """Where the model lies: inside the package for our name, else where it says."""
    return FOLDER if str(model) == NAME else Path(model)
