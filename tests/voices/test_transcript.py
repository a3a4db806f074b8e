"""Texts that can't be what their recordings say are noticed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cosyserve.voices.transcript import transcript_warning
from tests.engine.mocks import VOICE


def warning(text: str, seconds: float) -> str:
    count = round(25 * seconds)
    tokens, mel = np.zeros(count, np.int32), np.zeros((2 * count, 80), np.float32)
    return transcript_warning(replace(VOICE, prompt_text=text, speech_tokens=tokens, mel=mel))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("", 9),
        ("A voice without a recording.", 0),
        ("The birch canoe slid on the smooth planks.", 2.5),
        ("Well... yes.", 2),
        ("希望你以后能够做的比我还好呦。", 3.5),
        ("In 1984.", 1.8),
        ("You are a helpful assistant.<|endofprompt|>Good morning.", 1),
    ],
)
def test_what_people_say_fits(text: str, seconds: float) -> None:
    assert warning(text, seconds) == ""


@pytest.mark.parametrize(
    ("text", "seconds", "much"),
    [
        ("Hi.", 10, "little"),
        ("你好", 10, "little"),
        ("You are a helpful assistant, and always will be.<|endofprompt|>Hi.", 10, "little"),
        ("The birch canoe slid on the smooth planks. " * 4, 3, "much"),
        ("希望你以后能够做的比我还好呦。" * 4, 3.5, "much"),
    ],
)
def test_what_nobody_says_in_that_time_is_told(text: str, seconds: float, much: str) -> None:
    told = warning(text, seconds)
    assert f"the text is very {much} for {seconds:.1f} s of speech" in told
    assert "correct the text" in told
