from __future__ import annotations

import os
import subprocess
import sys

import pytest

LENGTHS = """
import cosyserve, torch
cosyserve.load("test", device="cpu")
layer = torch.nn.Conv1d(64, 8, 3)
with torch.inference_mode():
    for turn in range(2):
        print("turn", flush=True)
        for length in range(400, 500):
            layer(torch.zeros(1, 64, length))
"""


@pytest.mark.server
def test_what_is_compiled_for_one_length_is_not_kept_for_ever() -> None:
    unset = {k: v for k, v in os.environ.items() if k != "ONEDNN_PRIMITIVE_CACHE_CAPACITY"}

    def compiled(**env: str) -> int:
        """Convolutions and reorders that the second turn through all lengths finds gone."""
        env = unset | env | {"ONEDNN_VERBOSE": "profile_create"}
        command = [sys.executable, "-c", LENGTHS]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        _, first, second = done.stdout.split("turn\n")
        if "cache_miss" not in first:
            pytest.skip("this torch computes convolutions without oneDNN")
        return second.count("cache_miss")

    assert compiled() > 200
    assert compiled(ONEDNN_PRIMITIVE_CACHE_CAPACITY="1024") == 0  # who asks for more has it
