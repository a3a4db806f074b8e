"""A sentence for an engine: its prompt, its tokens, its audio."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cosyserve.audio import decode
from cosyserve.backends.vocabulary import COSYVOICE2, COSYVOICE3, Vocabulary
from cosyserve.contracts import SAMPLES_PER_TOKEN
from cosyserve.deploy.engine.say import (
    SayOptions,
    lm_request,
    make_audio,
    speech_alone,
    speech_tokens,
)
from cosyserve.deploy.engine.source import EngineSource
from cosyserve.errors import CosyError, InputError

BOTH = pytest.mark.parametrize("family", [COSYVOICE2, COSYVOICE3])


@pytest.mark.parametrize(
    ("folder", "lead"),
    [
        ("hugging_face_lm_folder", ""),
        ("hugging_face_lm3_folder", "You are a helpful assistant.<|endofprompt|>"),
    ],
)
def test_a_request_is_for_the_text_alone(
    folder: str, lead: str, request: pytest.FixtureRequest
) -> None:
    source = EngineSource.read(request.getfixturevalue(folder))
    tokenizer = source.tokenizer()
    asked = lm_request(source, "Speech tokens.")
    assert tokenizer.decode(asked.text, skip_special=False) == f"{lead}Speech tokens."
    length = len(tokenizer.encode("Speech tokens."))
    assert (asked.min_tokens, asked.max_tokens) == (2 * length, 20 * length)
    start, *text, task = Vocabulary.of(source.lm).prompt(asked)
    assert (start, tuple(text), task) == (source.lm.sos, asked.text, source.lm.task)
    with pytest.raises(InputError, match="--text '': not a text"):
        lm_request(source, "")


@BOTH
def test_tokens_go_to_the_first_end(family: Vocabulary) -> None:
    first = family.text
    for end in (family.ends.start, family.end, family.ends.stop - 1):
        assert speech_tokens([first, first + 6560, end, first + 1], family) == (0, 6560)
    assert speech_tokens([first + 5], family) == (5,)


@BOTH
def test_ids_that_are_no_speech_are_named(family: Vocabulary) -> None:
    for other in (0, family.text - 1, family.ends.stop):
        with pytest.raises(CosyError, match=f"drew the id {other}, which is no speech token"):
            speech_tokens([family.text, other], family)


@BOTH
def test_silence_is_no_success(family: Vocabulary) -> None:
    for ids in ([], [family.end], [family.end, family.text]):
        with pytest.raises(CosyError, match="no speech token: it was built of other weights"):
            speech_tokens(ids, family)


def test_cosyvoice3s_logits_of_text_are_out_of_the_way() -> None:
    bias = COSYVOICE3.bias
    assert bias is not None
    logits = torch.zeros(1, 1, len(bias) + 12)  # rows that several GPUs add
    logits[..., 5] = 100.0  # a text that would be drawn
    logits[..., COSYVOICE3.text + 7] = 1.0
    speech_alone(bias)(0, logits, [[]], None, None)
    assert int(logits.argmax()) == COSYVOICE3.text + 7


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
