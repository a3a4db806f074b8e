"""Triton's models forget voices that nobody uses, those that were removed among them."""

from __future__ import annotations

import importlib
import sys
import time
from unittest.mock import MagicMock

import pytest

from cosyserve.triton.vocabulary import COSYVOICE2
from tests.voices.test_file import PRESET


def test_the_voices_that_token2wav_is_asked_with(monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(sys.modules)
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", MagicMock())
    module = importlib.import_module("cosyserve.triton.models.backends")
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.05)
    try:
        backend = module.TritonToken2Wav("token2wav", 3, 1 << 20, COSYVOICE2)
        backend.begin(PRESET, with_prompt=False, seed=0, speed=1.0, stream=True)
        assert len(backend._voice_files) == 1
        until = time.monotonic() + 5
        while len(backend._voice_files):
            assert time.monotonic() < until
            time.sleep(0.01)
    finally:
        for name in set(sys.modules) - before:
            if name.startswith("cosyserve.triton.models"):
                del sys.modules[name]
