"""Compiling for a Hopper GPU without one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def compiled(script: str, cache: Path) -> list[str]:
    """What the script beside this file prints, in a process where nothing is interpreted."""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    env |= {"TRITON_CACHE_DIR": str(cache)}
    command = [sys.executable, Path(__file__).with_name(script)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()
