"""Every test that docs/reliability.md names is there, and every promise names one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reliability.md"
ROW = re.compile(r"^\| (\d+) \|(.*)\|$", re.MULTILINE)
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_every_promise_names_a_test() -> None:
    rows = {int(number): NAMED.findall(row) for number, row in ROW.findall(PAGE.read_text())}
    assert list(rows) == list(range(1, 21))
    assert [number for number, named in rows.items() if not named] == []


def test_every_test_that_is_named_is_there() -> None:
    missing = []
    for file, name in NAMED.findall(PAGE.read_text()):
        path = ROOT / file
        tree = ast.parse(path.read_text("utf-8")) if path.exists() else ast.Module([], [])
        if name not in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}:
            missing.append(f"{file}::{name}")
    assert missing == []
