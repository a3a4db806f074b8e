"""What a plan asks of the tokenizer and the reader, and how often."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest

from cosyserve.checkpoints.model import Model
from cosyserve.contracts import Mode, SpeechRequest, Voice
from cosyserve.engine.scheduling.lm_requests import LMTask, lm_tasks, max_speech_tokens
from cosyserve.errors import InputError
from cosyserve.text import TextTokenizer
from cosyserve.text.language import Language
from cosyserve.text.numbers import Reader, read_numbers

TEXT = "The quick brown fox jumps."


def tasks(model: Model, voice: Voice, text: str, read: Reader = read_numbers) -> list[LMTask]:
    _, tokenizer = model.need_lm()
    request = SpeechRequest(text, voice, Mode.ZERO_SHOT)
    return list(lm_tasks(model.config, tokenizer, request, text, read))


def test_a_short_text_is_encoded_once(
    model: Model, voice: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[str] = []
    encode = TextTokenizer.encode

    def counting(tokenizer: TextTokenizer, text: str) -> list[int]:
        encoded.append(text)
        return encode(tokenizer, text)

    monkeypatch.setattr(TextTokenizer, "encode", counting)
    (task,) = tasks(model, voice, TEXT)
    assert encoded.count(TEXT) == 1
    assert task.text_tokens == len(encode(model.need_lm()[1], TEXT))


def test_a_transcript_is_read_once_and_forgotten_with_its_voice(model: Model, voice: Voice) -> None:
    read: list[str] = []

    def reader(text: str, language: Language) -> str:
        read.append(text)
        return "many"

    voice = replace(voice, prompt_text="It cost £3bn.")
    first, again = (tasks(model, voice, TEXT, reader) for _ in range(2))
    assert len(read) == 1
    assert first == again
    kept = weakref.ref(voice)
    del voice
    gc.collect()
    assert kept() is None


def test_a_transcript_that_could_not_be_read_is_tried_again(model: Model, voice: Voice) -> None:
    def busy(text: str, language: Language) -> str:
        raise InterruptedError

    voice = replace(voice, prompt_text="It cost £3bn.")
    with pytest.raises(InterruptedError):
        tasks(model, voice, TEXT, busy)
    assert tasks(model, voice, TEXT, lambda text, language: "many")


def test_a_voice_that_leaves_no_room_is_the_requests_error(model: Model, voice: Voice) -> None:
    assert model.config.flow
    flow = replace(model.config.flow, max_frames=2 * len(voice.speech_tokens))
    with pytest.raises(InputError, match="leaves no room for speech: use a shorter recording"):
        max_speech_tokens(replace(model.config, flow=flow), SpeechRequest(TEXT, voice))
