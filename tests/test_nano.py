"""The small voice inside the package: does it still say the words?

There is no listener here, but there is the model's own speech tokenizer: what it hears in made
speech must be what the speech was made of.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import numpy.typing as npt
import pytest

import cosyserve
from cosyserve.audio import resample, whisper_log_mel
from cosyserve.checkpoints.load import SHIPPED, SHIPPED_FOLDER
from cosyserve.contracts import SAMPLE_RATE, SAMPLES_PER_TOKEN, Recording, Voice
from cosyserve.engine.compute.token2wav import Token2Wav
from cosyserve.engine.tts import TTS
from cosyserve.errors import InputError
from cosyserve.models.config import LEVELS
from cosyserve.settings import Settings
from cosyserve.voices.enroll import enroll
from cosyserve.voices.file import load_voice

SENTENCE = "Nobody hesitates to chat with his neighbor."


@pytest.fixture(scope="module")
def nano() -> TTS:
    return cosyserve.load(device="cpu")


@pytest.fixture(scope="module")
def presets() -> dict[str, Voice]:
    files = (SHIPPED_FOLDER / "voices").glob("*.safetensors")
    return {file.stem: load_voice(file) for file in files}


def digits(codes: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """What the codes say, dimension by dimension."""
    return np.stack([codes // LEVELS**k % LEVELS for k in range(7)], axis=-1)


@pytest.mark.parametrize("name", ["af_heart", "am_michael", "bm_fable"])
def test_speech_says_what_its_codes_mean(nano: TTS, presets: dict[str, Voice], name: str) -> None:
    voice = presets[name]
    token2wav = Token2Wav(*nano.model.need_token2wav())
    state = token2wav.begin(voice, with_prompt=False, seed=0, speed=1.0)
    ((samples, _),) = token2wav.whole([state], [voice.speech_tokens.tolist()])
    hear, _ = nano.model.need_prompt_encoders()
    narrow = resample(samples, SAMPLE_RATE, 16_000)
    heard = np.asarray(hear(whisper_log_mel(narrow)))[: len(voice.speech_tokens)]
    said = voice.speech_tokens[: len(heard)]
    assert (digits(said) == digits(heard)).mean() > 0.65
    shuffled = np.random.default_rng(0).permutation(said)
    assert (digits(shuffled) == digits(heard)).mean() < 0.5


def test_names_are_said_as_dictionaries_have_them(nano: TTS) -> None:
    _, tokenizer = nano.model.need_text_side()
    pronouncer = tokenizer.pronouncer
    assert pronouncer
    assert "Carnegie Mellon" in pronouncer.notice
    for written, said in {
        "Albuquerque": "ˈælbəkˌɜɹki",
        "Kevin's": "kˈɛvɪnz",
        "the Hernandezes": "ðə həɹnˈændɛzᵻz",
        "Wi-Fi": "wˈIfˌI",
        "a dog": "ɐ dˈɔɡ",
    }.items():
        assert pronouncer(written) == said


def test_text_takes_the_time_that_speech_takes(nano: TTS) -> None:
    whole = nano.say(SENTENCE)
    assert 1.5 < len(whole) / SAMPLE_RATE < 4.0
    assert len(whole) % SAMPLES_PER_TOKEN == 0
    streamed = np.concatenate([chunk.samples for chunk in nano.stream(SENTENCE)])
    assert len(streamed) == len(whole)  # the same words: only the flow's attention differs
    assert np.abs(streamed).max() > 0.05


@pytest.mark.parametrize(("speed", "pause"), [(1.0, 5760), (2.0, 2880)])
def test_speech_ends_with_a_pause(nano: TTS, speed: float, pause: int) -> None:
    """Its LM ends with the last sound; players and listeners that cut at once would lose it."""
    whole = nano.say(SENTENCE, speed=speed)
    assert not whole[-pause:].any()
    assert whole[-pause - SAMPLES_PER_TOKEN : -pause].any()


def test_silence_around_a_recording_is_no_part_of_the_voice(nano: TTS) -> None:
    one, two = (nano.say(SENTENCE, seed=seed, final_pause=False) for seed in (1, 2))
    half = np.zeros(SAMPLE_RATE // 2, np.float32)
    bare, *hushed = (
        enroll(nano.model, Recording(np.concatenate(parts), SAMPLE_RATE)).embedding
        for parts in ((one, two), (one, two, half), (half, one, two), (one, half, two))
    )
    for embedding in hushed:  # 0.4 where the silence is heard
        likeness = embedding @ bare / np.linalg.norm(embedding) / np.linalg.norm(bare)
        assert likeness > 0.8


def test_it_speaks_when_no_model_is_given(nano: TTS, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COSYSERVE_MODEL")
    assert Settings.read().model == SHIPPED
    assert nano.model.config.name == "cosyserve-nano"


def test_loading_leaves_the_compiler_of_torch_alone() -> None:
    program = "import cosyserve, sys; cosyserve.load('nano'); print('torch._dynamo' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False"]


def test_longer_text_takes_longer(nano: TTS) -> None:
    assert len(nano.say("Yes, of course.")) < len(nano.say(SENTENCE)) / 1.5


def test_text_in_pieces_is_spoken_sentence_by_sentence(nano: TTS) -> None:
    follows = "Yes, of course he does not."
    heard = list(nano.stream(iter([SENTENCE[:10], SENTENCE[10:], f" {follows}"]), seed=4))
    assert [chunk.index for chunk in heard] == list(range(len(heard)))
    assert [chunk.final for chunk in heard] == [False] * (len(heard) - 1) + [True]
    alone = [c for n, text in enumerate((SENTENCE, follows)) for c in nano.stream(text, seed=4 + n)]
    samples = [np.concatenate([chunk.samples for chunk in chunks]) for chunks in (heard, alone)]
    assert np.abs(samples[0] - samples[1]).max() < 1e-4
    assert sum(chunk.text_tokens for chunk in heard) == sum(chunk.text_tokens for chunk in alone)


@pytest.mark.parametrize("text", ["早上好。", "请把窗户关上，外面开始下雨了。", "Добрый день!"])
def test_what_it_can_not_read_is_refused(nano: TTS, text: str) -> None:
    with pytest.raises(InputError, match="knows no sound"):
        nano.say(text)


def test_what_it_can_read_is_said(nano: TTS) -> None:
    strange = f"{SENTENCE} 外面开始下雨了。"
    assert 1.5 < len(nano.say(strange)) / SAMPLE_RATE < 4.0


def test_presets_are_of_every_kind(presets: dict[str, Voice]) -> None:
    for kind in ("af_", "am_", "bf_", "bm_"):
        assert sum(name.startswith(kind) for name in presets) >= 2
    assert {"default", "kathleen"} <= presets.keys()


def test_the_package_stays_small() -> None:
    files = [file for file in SHIPPED_FOLDER.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) <= 30e6
