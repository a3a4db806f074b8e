"""The law of length: how much speech a text has, given the voice that leads the LM."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.engine.scheduling.pace import SPOKEN, Pace, count_letters
from cosyserve.models.config import LMConfig, ModelConfig

CONFIG = ModelConfig(lm=LMConfig())
COUNTS = st.integers(1, 400)
TEXTS = st.text(max_size=200)


def test_the_voice_sets_the_pace() -> None:
    slow, fast = (Pace.of(CONFIG, 10, tokens, "How do you do?") for tokens in (100, 50))
    text = "She asked whether anybody was at home"
    assert (slow.least_tokens(8, text), fast.least_tokens(8, text)) == (SPOKEN * 80, SPOKEN * 40)


@pytest.mark.parametrize(
    ("ids", "tokens", "transcript"),
    [
        (0, 0, ""),  # no prompt
        (10, 0, "How do you do?"),  # no speech
        (0, 90, ""),  # no transcript
        (10, 10, "How do you do?"),  # of another recording, or cut
        (10, 900, "How do you do?"),
        (10, 90, "?!"),
    ],
)
def test_without_a_credible_prompt_it_is_the_models(ids: int, tokens: int, transcript: str) -> None:
    assert Pace.of(CONFIG, ids, tokens, transcript) == Pace.of(CONFIG, 0, 0, "")


def test_random_weights_have_none() -> None:
    pace = Pace.of(replace(CONFIG, speech=False), 10, 100, "How do you do?")
    assert pace.least_tokens(100, "a" * 400) == 0


def test_marks_and_rare_scripts_are_no_speech() -> None:
    """What has many ids and few letters is short; what has few ids is short, too."""
    pace = Pace.of(CONFIG, 10, 70, "How do you do? I am well.")
    assert pace.least_tokens(40, "No!!! (no) ... ?!") == pace.least_tokens(4, "Nono") == 8
    assert pace.least_tokens(40, "...") == pace.least_tokens(0, "Noon") == 0


@given(st.integers(0, 50), st.integers(0, 500), TEXTS, COUNTS, TEXTS)
def test_the_bound_is_below_what_is_expected(
    prompt_ids: int, speech: int, transcript: str, ids: int, text: str
) -> None:
    pace = Pace.of(CONFIG, prompt_ids, speech, transcript)
    bound, expected = pace.least_tokens(ids, text), pace.expected(ids, count_letters(text))
    assert 0 <= bound <= SPOKEN * expected
    assert bound > SPOKEN * expected - 1
    assert math.isfinite(expected)
    # A longer text never needs less speech.
    assert pace.least_tokens(ids + 1, text) >= bound
    assert pace.least_tokens(ids, text + "a") >= bound


@given(COUNTS, st.integers(2, 20), TEXTS, COUNTS)
def test_a_prompt_that_is_said_again_is_long_enough(
    ids: int, per_id: int, transcript: str, shorter: int
) -> None:
    """As far as the bound goes: a voice that keeps its pace is never too short."""
    pace = Pace.of(CONFIG, ids, per_id * ids, transcript)
    assert pace.least_tokens(ids, transcript) <= per_id * ids
    assert pace.least_tokens(min(ids, shorter), transcript) <= per_id * min(ids, shorter)
