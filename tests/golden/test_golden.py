"""The committed golden vectors; `verify.py` checks any other folder of that form."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.golden.verify import CASES, Result, verify

HERE = Path(__file__).parent


def test_all_committed_cases_hold() -> None:
    results = list(verify(HERE, full=False, tokenizer=None))
    assert [str(r) for r in results if r.status == "FAIL"] == []
    passed = {r.case.partition("_")[0] for r in results if r.status == "ok"}
    assert passed >= set(CASES) | {"text"}


def folder_with_one_case(tmp_path: Path, spoil: bool = False) -> Path:
    manifest = json.loads((HERE / "manifest.json").read_text())
    manifest["cases"] = {"ras": manifest["cases"]["ras"]}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with np.load(HERE / "ras.npz") as file:
        arrays = dict(file)
    if spoil:
        arrays["final"][3] += 1
    np.savez(tmp_path / "ras.npz", **arrays)
    return tmp_path


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("spoil", [False, True])
def test_the_command_fails_exactly_when_an_output_differs(tmp_path: Path, spoil: bool) -> None:
    folder = folder_with_one_case(tmp_path, spoil)
    command = [sys.executable, str(HERE / "verify.py"), str(folder)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == int(spoil), run.stdout + run.stderr
    status, case, output, *_ = run.stdout.split()
    assert (status, case) == ("FAIL" if spoil else "ok", "ras")
    assert output == "final:" or not spoil


def test_an_output_that_nobody_computes_is_a_failure(tmp_path: Path) -> None:
    folder = folder_with_one_case(tmp_path)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["cases"]["ras"]["outputs"]["unheard_of"] = 1e-3
    manifest["cases"]["newfamily_tiny"] = manifest["cases"]["ras"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    results: dict[str, Result] = {r.case: r for r in verify(folder, full=False, tokenizer=None)}
    assert "unheard_of: not computed" in results["ras"].detail
    assert results["newfamily_tiny"].status == "FAIL"
