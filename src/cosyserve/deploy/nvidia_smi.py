"""What NVIDIA's own tool says of this machine's first GPU."""

from __future__ import annotations

import shutil
import subprocess


def nvidia_smi(field: str) -> str:
    """A field of its query, as `name` or `driver_version`; empty: there is no GPU or no tool."""
    if shutil.which("nvidia-smi") is None:
        return ""
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.split("\n")[0].strip()
