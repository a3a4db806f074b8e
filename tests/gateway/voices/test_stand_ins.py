"""OpenAI's names: as many different voices as a model has."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from cosyserve.gateway.voices.stand_ins import OPENAI_VOICES, stand_ins

NANO = [file.stem for file in Path(str(files("cosyserve") / "nano" / "voices")).iterdir()]


def test_nano_has_thirteen_different_voices() -> None:
    chosen = stand_ins(NANO)
    assert chosen.keys() == OPENAI_VOICES.keys()
    assert len(set(chosen.values())) == 13
    assert set(chosen.values()) < set(NANO) - {"default"}
    assert (chosen["nova"], chosen["onyx"], chosen["fable"]) == ("af_nova", "am_onyx", "bm_fable")
    assert all(voice[1] == OPENAI_VOICES[name] for name, voice in chosen.items())


@pytest.mark.parametrize("own", [[], ["default"], ["default", "001"]])
def test_a_model_with_one_voice_has_no_choice(own: list[str]) -> None:
    assert set(stand_ins(own).values()) == {"default"}


def test_few_voices_are_taken_in_turn() -> None:
    chosen = stand_ins(["default", "001", "longxiaoxia", "xiaohe"])
    assert [chosen[name] for name in ("alloy", "ash", "ballad", "cedar")] == [
        *("001", "longxiaoxia", "xiaohe"),
        "001",
    ]
    assert stand_ins(["af_a", "am_b"])["echo"] == "am_b"
