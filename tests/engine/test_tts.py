from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from cosyserve.checkpoints.model import Model
from cosyserve.contracts import Voice
from cosyserve.engine.tts import TTS

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

HOLES = """
import cosyserve
from tests.own_memory import own_memory

tts = cosyserve.load("test", device="cpu")
text = "The quick brown fox jumps over the lazy dog. " * 8
tts.say(text)
blocks = [bytearray(100_000) for _ in range(2000)]
del blocks[::2]
before = own_memory()
print(before - min(own_memory() for _ in range(2) for chunk in tts.utter(text)))
"""


def test_voices_are_known_from_one_call_to_the_next(model: Model) -> None:
    tts = TTS(model)
    voice = Voice(
        "",
        np.arange(60, dtype=np.int32),
        np.zeros((120, 80), np.float32),
        np.ones(192, np.float32),
    )
    first = [chunk.samples for chunk in tts.stream("Hello there.", voice, seed=1)]
    kept = tts._token2wavs
    others = tts.stream("Other words.", voice, seed=2), tts.stream("Hello there.", voice, seed=1)
    in_turns = [[chunk.samples for chunk in pair] for pair in zip(*others, strict=False)]
    assert tts._token2wavs is kept
    again = np.concatenate([pair[1] for pair in in_turns])
    np.testing.assert_allclose(again, np.concatenate(first)[: len(again)], atol=1e-4)


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


@pytest.mark.server
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_that_lies_between_what_is_in_use_is_given_back() -> None:
    command = [sys.executable, "-c", HOLES]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) > 50_000_000  # of 100 million
