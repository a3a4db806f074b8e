"""CosyVoice3 through the engine: its prompts, its streams, its voices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosyserve.checkpoints.load import load_folder
from cosyserve.checkpoints.model import Model
from cosyserve.contracts import AudioChunk, Mode, Recording, Sampling, SpeechRequest, Voice
from cosyserve.engine.compute.generation import Generation, WholeText
from cosyserve.engine.compute.graphs import padded_flow, vocoder
from cosyserve.engine.compute.token2wav import Token2Wav
from cosyserve.engine.scheduling.lm_requests import Prompt, arriving_tokens, lm_tasks, prompt
from cosyserve.engine.speak import speak
from cosyserve.errors import VoiceError
from cosyserve.models.config import LMConfig
from cosyserve.models.lm.bistream import Bistream
from cosyserve.text.numbers import read_numbers
from cosyserve.voices.enroll import enroll
from tests.decibels import decibels

TEXT = "Speech tokens become frames, and frames become samples."
PREFIX = "You are a helpful assistant.<|endofprompt|>"


@pytest.fixture(scope="module")
def cosyvoice3(cosyvoice3_folder: Path) -> Model:
    tiny = load_folder(cosyvoice3_folder)
    return replace(tiny, config=replace(tiny.config, speech=False))


@pytest.fixture(scope="module")
def speaker(cosyvoice3: Model) -> Voice:
    noise = np.random.default_rng(0).standard_normal(60 * 960).astype(np.float32)
    return enroll(cosyvoice3, Recording(0.1 * noise, 24_000, "A few words.", name="noise"))


def led(model: Model, request: SpeechRequest) -> tuple[Prompt, list[str]]:
    """The prompt of a request, and its text ids as text."""
    config, tokenizer = model.need_text_side()
    found = prompt(request, config, tokenizer, "", read_numbers)
    return found, [tokenizer.decode(ids, skip_special=False) for ids in found[:2]]


def test_a_voice_hears_up_to_12_khz(cosyvoice3: Model, speaker: Voice, model: Model) -> None:
    assert speaker.family == "cosyvoice3"
    assert len(speaker.speech_tokens) == 60
    rng = np.random.default_rng(0)
    noise = 0.1 * rng.standard_normal(60 * 960).astype(np.float32)
    other = enroll(model, Recording(noise, 24_000, "A few words.", name="other"))
    assert np.abs(other.mel - speaker.mel).max() > 0.1
    for stranger, spoken_by in ((other, cosyvoice3), (speaker, model)):
        with pytest.raises(VoiceError, match="add it again from its recording"):
            list(speak(spoken_by, SpeechRequest(TEXT, stranger)))


@pytest.mark.parametrize(
    ("mode", "instruction", "transcript", "expected"),
    [
        (Mode.ZERO_SHOT, "", "A few words.", [PREFIX, "A few words."]),
        (Mode.ZERO_SHOT, "", f"{PREFIX}A few words.", [PREFIX, "A few words."]),
        (Mode.CROSS_LINGUAL, "", "A few words.", [PREFIX, ""]),
        (Mode.INSTRUCT, "Sing.", "", ["You are a helpful assistant. Sing.<|endofprompt|>", ""]),
        (Mode.INSTRUCT, f"{PREFIX[:28]} Sing.", "", [f"{PREFIX[:28]} Sing.<|endofprompt|>", ""]),
        (Mode.PRESET, "", "", [PREFIX, ""]),
    ],
)
def test_every_prompt_has_its_prefix_once(
    cosyvoice3: Model,
    speaker: Voice,
    mode: Mode,
    instruction: str,
    transcript: str,
    expected: list[str],
) -> None:
    voice = replace(speaker, prompt_text=transcript)
    request = SpeechRequest(TEXT, voice, mode, instruction)
    found, texts = led(cosyvoice3, request)
    assert texts == expected
    assert found.speech == (speaker.speech_tokens.tolist() if mode is Mode.ZERO_SHOT else [])


def asked(model: Model, request: SpeechRequest) -> list[str]:
    """What the LM reads for each segment of a text."""
    config, tokenizer = model.config, model.text_tokenizer
    assert tokenizer
    tasks = lm_tasks(config, tokenizer, request, str(request.text), read_numbers)
    return [tokenizer.decode(task.request.text, skip_special=False) for task in tasks]


@pytest.mark.parametrize("mode", [Mode.CROSS_LINGUAL, Mode.ZERO_SHOT])
def test_a_text_may_bring_its_prefix(cosyvoice3: Model, speaker: Voice, mode: Mode) -> None:
    """It then leads every segment, and the text is read as any other."""
    own = "You are a calm assistant.<|endofprompt|>"
    voice = replace(speaker, prompt_text=f"{PREFIX}A few words.")
    lead = own if mode is Mode.CROSS_LINGUAL else f"{own}A few words."
    first, *others = asked(cosyvoice3, SpeechRequest(f"{own}I have 2. {TEXT * 8}", voice, mode))
    assert first.startswith(f"{lead}I have two.")
    assert others
    for part in others:
        assert part.startswith(lead)
        assert part.count("<|endofprompt|>") == 1


def test_stresses_stay_digits(cosyvoice3: Model, speaker: Voice) -> None:
    text = "I [R][EH1][D] 2 books [j][ǐ]."
    (said,) = asked(cosyvoice3, SpeechRequest(text, speaker))
    assert said.endswith("I [R][EH1][D] two books [j][ǐ].")


def test_sounds_that_arrive_in_pieces_are_one_token_each(cosyvoice3: Model, speaker: Voice) -> None:
    text = "I [R][EH1][D] 2 books [j][ǐ]."
    tokenizer = cosyvoice3.need_text_side()[1]
    tokens = arriving_tokens(SpeechRequest(iter(()), speaker), tokenizer)
    ids = [id_ for letter in text for id_ in tokens.push(letter)] + tokens.flush()
    assert ids == tokenizer.encode("I [R][EH1][D] two books [j][ǐ].")


def samples(found: list[AudioChunk]) -> np.ndarray:
    return np.concatenate([chunk.samples for chunk in found])


def test_streamed_speech_is_whole_speech(cosyvoice3: Model, speaker: Voice) -> None:
    """One mask to the last chunk, and a vocoder that sees all it needs: nothing differs."""
    token2wav = Token2Wav(*cosyvoice3.need_token2wav())
    begun = token2wav.begin(speaker, with_prompt=True, seed=5, speed=1.0)
    tokens = np.random.default_rng(1).integers(0, 6561, 120).tolist()
    ((whole, _),) = token2wav.advance([begun], [tokens], [True])
    state, parts = begun, []
    for end in (15, 40, 90):
        ((part, state),) = token2wav.advance([state], [tokens[: end + 3]], [False])
        parts.append(part)
    ((part, _),) = token2wav.advance([state], [tokens], [True])
    streamed = np.concatenate([*parts, part])
    assert len(parts[0]) == 480 * (2 * 15 - 5)
    assert len(streamed) == len(whole) == 960 * 120
    assert decibels(streamed, whole) < -60


def test_padded_shapes_and_company_change_nothing(
    cosyvoice3: Model, speaker: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, on static buffers."""
    monkeypatch.setattr(padded_flow, "SIZES", (104,))
    monkeypatch.setattr(vocoder, "SIZES", (80,))
    parts = cosyvoice3.need_token2wav()
    together, alone = Token2Wav(*parts, (2,), static=True), Token2Wav(*parts, static=False)
    together.warm_up()
    states = [
        alone.begin(speaker, with_prompt=prompted, seed=seed, speed=1.0)
        for seed, prompted in enumerate((True, False))
    ]
    tokens = [np.random.default_rng(n).integers(0, 6561, n).tolist() for n in (18, 30)]
    both = together.advance(states, tokens, [False, True])
    for state, row, last, (samples, _) in zip(states, tokens, (False, True), both, strict=True):
        ((wanted, _),) = alone.advance([state], [row], [last])
        assert decibels(samples, wanted) < -60


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mode": Mode.CROSS_LINGUAL},
        {"mode": Mode.INSTRUCT, "instruction": "Please say a sentence in a very soft voice."},
    ],
)
def test_it_speaks_streamed_and_whole(
    cosyvoice3: Model, speaker: Voice, options: dict[str, Any]
) -> None:
    whole = list(speak(cosyvoice3, SpeechRequest(TEXT, speaker, seed=2, **options)))
    streamed = list(speak(cosyvoice3, SpeechRequest(TEXT, speaker, seed=2, stream=True, **options)))
    assert len(whole) == 1
    assert len(streamed) > 1
    assert sum(chunk.tokens for chunk in streamed) == whole[0].tokens
    assert len(samples(streamed)) == len(samples(whole)) == 960 * whole[0].tokens


def pieces() -> Iterator[str]:
    yield from ("Speech tokens ", "become frames, ", "and frames ", "become samples.")


@pytest.mark.parametrize("instruction", ["", "Speak slowly."])
def test_it_speaks_while_text_arrives(cosyvoice3: Model, speaker: Voice, instruction: str) -> None:
    mode = Mode.INSTRUCT if instruction else Mode.ZERO_SHOT
    request = SpeechRequest(pieces(), speaker, mode, instruction, stream=True)
    found = list(speak(cosyvoice3, request))
    assert found[-1].final
    assert len(samples(found)) == 960 * sum(chunk.tokens for chunk in found)


def test_control_ids_are_drawn_where_they_mean_something() -> None:
    config = LMConfig(kind="cosyvoice3")
    assert (config.eos, config.fill, config.classes) == (6562, 6564, 6761)
    assert WholeText(config, [], 0).forbidden == ()
    stream = Bistream(config, [], [], [1, 2])
    assert set(config.control) - set(stream.forbidden) == {config.fill}
    stream.end()
    assert stream.feed() == [config.sos, 1, 2, config.task]
    assert set(config.control) - set(stream.forbidden) == {config.eos}


def test_a_long_silence_is_cut_short() -> None:
    config = LMConfig(kind="cosyvoice3")
    row = Generation(WholeText(config, [], 0), 0, Sampling(), max_tokens=14)
    for token in (100, *[28] * 9, 100, 29):
        row.take(token)
    assert row.tokens == [100, *[28] * 5, 100, 29]
    assert (len(row.drawn), row.finish) == (12, None)
    row.take(1)
    row.take(2)
    assert row.finish == "length"
    ended = Generation(WholeText(config, [], 0), 0, Sampling(), max_tokens=14)
    ended.take(6700)
    assert (ended.tokens, ended.finish) == ([], "stop")
