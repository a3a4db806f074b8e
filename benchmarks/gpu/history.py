"""Reports of one run each, kept in benchmarks/history with the commit they were made of."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[2]
HISTORY = ROOT / "benchmarks" / "history"


def provenance(command: str) -> dict[str, Any]:
    """On what, when and by what a report is made."""
    on_gpu = torch.cuda.is_available()
    return {
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "torch": torch.__version__,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "command": command,
    }


def keep(report: dict[str, Any], what: str) -> Path:
    """Writes benchmarks/history/TIME-GPU-WHAT.json."""
    HISTORY.mkdir(exist_ok=True)
    when, device = report["when"][:16].replace(":", ""), report["device"].lower()
    file = HISTORY / f"{when}-{device.replace(' ', '-')}-{what}.json"
    file.write_text(json.dumps(report, indent=1), "utf-8")
    return file


def _commit() -> str | None:
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() or None
