"""Imports go down the house only."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "cosyserve"
FLOORS = [
    {"cli"},
    {"doctor"},
    {"deploy"},
    {"bench"},
    {"gateway"},
    {"triton"},
    {"engine"},
    {"backends"},
    {"voices"},
    {"models"},
    {"text"},
    {"audio"},
    {"settings"},
    {"contracts"},
]
LEVEL = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}


def imports(file: Path) -> set[str]:
    """Rooms of cosyserve that a file imports, at any depth."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            whole = node.module == "cosyserve"
            names = [f"cosyserve.{a.name}" for a in node.names] if whole else [node.module]
        found |= {name.split(".")[1] for name in names if name.startswith("cosyserve.")}
    return found - {"__version__"}


def test_every_file_stands_in_a_room() -> None:
    rooms = {path.stem for path in PACKAGE.iterdir() if not path.name.startswith("__")}
    assert rooms - {"nano"} == set(LEVEL)  # nano is a model, not code


def test_imports_go_down_only() -> None:
    wrong = []
    for file in sorted(PACKAGE.rglob("*.py")):
        room = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        wrong += [
            f"{file.relative_to(PACKAGE)} imports {other}"
            for other in imports(file) - {room}
            if LEVEL[other] <= LEVEL[room]
        ]
    assert wrong == []


def test_no_file_is_two_ideas_long() -> None:
    lengths = {f.stem: len(f.read_text("utf-8").splitlines()) for f in PACKAGE.rglob("*.py")}
    assert {name: n for name, n in lengths.items() if n > 330} == {}


def test_every_module_says_what_it_is() -> None:
    silent = [
        str(f.relative_to(PACKAGE))
        for f in PACKAGE.rglob("*.py")
        if not ast.get_docstring(ast.parse(f.read_text("utf-8")))
    ]
    assert silent == []
