"""What an operator lets clients ask for."""

from __future__ import annotations

import pytest

from cosyserve.gateway.policy import Policy
from cosyserve.settings import Settings


@pytest.mark.parametrize(
    ("name", "means_it"),
    [
        ("tts-1", True),
        ("/models/CosyVoice2-0.5B", True),
        ("CosyVoice2-0.5B", True),
        ("gpt-5", False),
        ("", False),
    ],
)
def test_a_model_is_also_called_what_it_was_asked_for_by(name: str, means_it: bool) -> None:
    policy = Policy.of(Settings.read(model="/models/CosyVoice2-0.5B"))
    assert policy.is_alias(name) == means_it


def test_any_name_means_the_model_where_the_operator_says_so() -> None:
    assert Policy.of(Settings.read(model="nano", model_aliases="*")).is_alias("gpt-5")
