"""Imports go down the house only, between its rooms and between the wings of its largest rooms."""

from __future__ import annotations

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "cosyserve"
MAX_LINES = 330
MAX_FILES = 14  # __init__ included

# Floors from the top down, by room and inside four rooms. What shares a floor never meets.
HOUSE = [
    {"__main__"},
    {"cli"},
    {"doctor"},
    {"server"},
    {"deploy"},
    {"bench"},
    {"gateway"},
    {"triton", "ray", "alignment"},
    {"engine"},
    {"backends"},
    {"voices"},
    {"checkpoints"},
    {"models"},
    {"text"},
    {"audio"},
    {"settings"},
    {"choices"},
    {"contracts"},
    {"errors", "version", "malloc", "signals"},
]
WINGS = {
    "gateway": [
        {"serve"},
        {"app", "doors"},
        {"websocket", "realtime", "dialects", "wyoming", "original"},
        {"connection"},
        {"speech"},
        {"voices", "status", "page"},
        {"models"},
        {"limits", "policy", "rates"},
        {"telemetry", "keys", "encoding"},
        {"transport", "key_file", "bodies"},
        {"errors"},
    ],
    "engine": [
        {"tts", "in_process", "workers"},
        {"speak", "split"},
        {"scheduling", "text_stream"},
        {"compute"},
    ],
    "checkpoints": [
        {"prepare"},
        {"hub"},
        {"load"},
        {"model", "testmodel", "published"},
        {"onnx"},
        {"native"},
        {"parts"},
        {"plain_files", "config_data", "folder"},
    ],
    "models": [
        {"fused"},
        {"lm", "flow", "vocoder", "encoders"},
        {"kernels", "config", "randomness", "int8"},
    ],
}


@cache
def imports(file: Path) -> set[str]:
    """Modules and names of cosyserve that a file imports, at any depth."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name.startswith("cosyserve.")}


def climbs(folder: Path, floors: list[set[str]]) -> list[str]:
    """Imports inside a folder that don't go down."""
    level = {name: number for number, names in enumerate(floors) for name in names}
    prefix = ".".join(["cosyserve", *folder.relative_to(PACKAGE).parts]) + "."
    wrong = []
    for file in sorted(folder.rglob("*.py")):
        here = file.relative_to(folder).parts[0].removesuffix(".py")
        there = {
            n.removeprefix(prefix).split(".")[0] for n in imports(file) if n.startswith(prefix)
        }
        if here != "__init__":
            wrong += [
                f"{file.relative_to(PACKAGE)} imports {other}"
                for other in there - {here}
                if level[other] <= level[here]
            ]
    return wrong


def places(folder: Path) -> set[str]:
    return {
        path.stem
        for path in folder.iterdir()
        if path.name != "__init__.py" and (path.suffix == ".py" or (path / "__init__.py").exists())
    }


@pytest.mark.parametrize("room", ["", *WINGS])
def test_imports_go_down_only(room: str) -> None:
    floors = WINGS.get(room, HOUSE)
    assert places(PACKAGE / room) == set().union(*floors)
    assert climbs(PACKAGE / room, floors) == []


def test_no_circle_is_in_the_house() -> None:
    """Not even of imports inside functions, or for types alone."""
    files = {
        ".".join(("cosyserve", *f.relative_to(PACKAGE).with_suffix("").parts)): f
        for f in PACKAGE.rglob("*.py")
    }
    graph = {
        name: {
            other
            for target in imports(file)
            for other in (target, target.rpartition(".")[0])
            if other in files and other != name
        }
        for name, file in files.items()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_no_file_is_two_ideas_long() -> None:
    lengths = {file: len(file.read_text("utf-8").splitlines()) for file in PACKAGE.rglob("*.py")}
    assert {str(f.relative_to(PACKAGE)): n for f, n in lengths.items() if n > MAX_LINES} == {}


def test_no_folder_is_a_drawer() -> None:
    counts = {folder: len(list(folder.glob("*.py"))) for folder in PACKAGE.rglob("*")}
    assert {str(f.relative_to(PACKAGE)): n for f, n in counts.items() if n > MAX_FILES} == {}


def test_every_module_says_what_it_is() -> None:
    silent = [
        str(f.relative_to(PACKAGE))
        for f in PACKAGE.rglob("*.py")
        if not ast.get_docstring(ast.parse(f.read_text("utf-8")))
    ]
    assert silent == []
