"""A sentence for an engine: its prompt, its tokens, its audio."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosyserve.audio import decode
from cosyserve.contracts import SAMPLES_PER_TOKEN
from cosyserve.deploy.engine.say import SayOptions, make_audio, prompt_ids, speech_tokens
from cosyserve.deploy.engine.source import EngineSource
from cosyserve.errors import CosyError, InputError
from cosyserve.models.config import LMConfig

LM = LMConfig(text_vocab=151_663)
FIRST, END = 151_663, 158_224


def test_a_prompt_is_start_text_task(hugging_face_lm_folder: Path) -> None:
    source = EngineSource.read(hugging_face_lm_folder)
    start, *text, task = prompt_ids(source, "Speech tokens.")
    assert (start, task) == (source.lm.sos, source.lm.task)
    assert source.tokenizer().decode(text) == "Speech tokens."


def test_a_prompt_has_text(hugging_face_lm_folder: Path) -> None:
    with pytest.raises(InputError, match="--text '': not a text"):
        prompt_ids(EngineSource.read(hugging_face_lm_folder), "")


@pytest.mark.parametrize("end", [END, END + 1, END + 2])
def test_tokens_go_to_the_first_end(end: int) -> None:
    assert speech_tokens([FIRST, FIRST + 6560, end, FIRST + 1], LM) == [0, 6560]
    assert speech_tokens([FIRST + 5], LM) == [5]


@pytest.mark.parametrize("other", [0, FIRST - 1, LM.sos, LM.task, LM.task + 50])
def test_ids_that_are_no_speech_are_named(other: int) -> None:
    with pytest.raises(CosyError, match=f"drew the id {other}, which is no speech token"):
        speech_tokens([FIRST, other], LM)


@pytest.mark.parametrize("ids", [[], [END], [END, FIRST]])
def test_silence_is_no_success(ids: list[int]) -> None:
    with pytest.raises(CosyError, match="no speech token: it was built of other weights"):
        speech_tokens(ids, LM)


def test_tokens_become_audible(tmp_path: Path) -> None:
    make_audio([1, 20, 300, 4000] * 5, Path("test"), tmp_path / "out.wav")
    heard = decode(tmp_path / "out.wav")
    assert len(heard.samples) == 20 * SAMPLES_PER_TOKEN
    assert abs(heard.samples).max() > 0


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (SayOptions(text=" "), "--text is empty"),
        (SayOptions(speak=Path("m")), "belong together"),
        (SayOptions(output=Path("out.wav")), "belong together"),
        (SayOptions(speak=Path("m"), output=Path("out.mp3")), "out.mp3: a wav file"),
        (SayOptions(speak=Path("m"), output=Path("out.wav")), "--speak m: no such folder"),
    ],
)
def test_options_that_make_no_sense(options: SayOptions, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        options.check()
