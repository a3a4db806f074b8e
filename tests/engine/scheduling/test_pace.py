"""The law of length: how much speech a text has at least, given the voice that leads the LM."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.engine.scheduling.pace import HELD, SPOKEN, Pace
from cosyserve.models.config import LMConfig, ModelConfig
from cosyserve.text.split import count_letters

CONFIG = ModelConfig(lm=LMConfig())  # 2 to 20 tokens an id
PROMPT = "How do you do? I am well."
TEXT = "She asked whether anybody was at home, and went away."
COUNTS = st.integers(0, 400)
TEXTS = st.text(max_size=200)


def test_the_voice_sets_the_pace() -> None:
    slow, fast = (Pace.of(CONFIG, 10, tokens, PROMPT) for tokens in (160, 80))
    assert slow.least_tokens(10, TEXT) == SPOKEN * 160
    assert fast.least_tokens(10, TEXT) == SPOKEN * 80


@pytest.mark.parametrize(
    ("ids", "tokens", "transcript"),
    [
        (0, 0, ""),  # no prompt
        (10, 0, PROMPT),  # no speech
        (0, 90, ""),  # no transcript
        (10, 10, PROMPT),  # of another recording, or cut
        (10, 900, PROMPT),
        (10, 90, "?!"),
    ],
)
def test_without_a_credible_prompt_only_the_least_is_known(
    ids: int, tokens: int, transcript: str
) -> None:
    pace = Pace.of(CONFIG, ids, tokens, transcript)
    assert pace.least_tokens(10, TEXT) == HELD * 20


def test_an_lm_that_ends_as_soon_as_it_may_ended_too_soon() -> None:
    """However fast its voice is."""
    fast = Pace.of(CONFIG, 10, 20, PROMPT)
    assert fast.least_tokens(10, TEXT) == 22


def test_random_weights_have_no_pace() -> None:
    pace = Pace.of(replace(CONFIG, speech=False), 10, 100, PROMPT)
    assert pace.least_tokens(100, "a" * 400) == 0


def test_marks_and_rare_scripts_are_less_speech() -> None:
    pace = Pace.of(CONFIG, 10, 170, PROMPT)  # 10 tokens a letter
    assert pace.least_tokens(40, "No!!! (no) ... ?!") == SPOKEN * 40
    assert pace.least_tokens(4, "아니요 아니요 아니요") == int(SPOKEN * 4 * 17)
    assert pace.least_tokens(40, "...") == pace.least_tokens(0, "Noon") == 0


@given(st.integers(0, 50), st.integers(0, 500), TEXTS, COUNTS, TEXTS)
def test_a_longer_text_never_has_less_speech(
    prompt_ids: int, speech: int, transcript: str, ids: int, text: str
) -> None:
    pace = Pace.of(CONFIG, prompt_ids, speech, transcript)
    bound = pace.least_tokens(ids, text)
    assert 0 <= bound <= max(SPOKEN * pace.expected(ids, count_letters(text)), HELD * 2 * ids)
    assert pace.least_tokens(ids + 1, text) >= bound
    assert pace.least_tokens(ids, text + "a") >= bound


@given(st.integers(1, 400), st.floats(2.5, 20), TEXTS)
def test_a_voice_that_keeps_its_pace_is_never_too_short(
    ids: int, per_id: float, transcript: str
) -> None:
    spoken = int(per_id * ids)
    pace = Pace.of(CONFIG, ids, spoken, transcript)
    assert pace.least_tokens(ids, transcript) <= spoken
