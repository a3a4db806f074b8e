from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cosyserve.checkpoints.load import load_folder
from cosyserve.checkpoints.model import Model
from cosyserve.contracts import Recording
from cosyserve.errors import InputError, VoiceError
from cosyserve.voices.enroll import enroll, made_anew, with_short_first_hop
from cosyserve.voices.file import from_bytes, to_bytes
from cosyserve.voices.fits import check_fits


def recording(seconds: float, rate: int = 16_000, loudness: float = 0.1, **texts: str) -> Recording:
    noise = np.random.default_rng(0).standard_normal(round(seconds * rate)) * loudness
    return Recording(noise.astype(np.float32), rate, **texts)


@pytest.mark.parametrize("rate", [8000, 16_000, 22_050, 24_000, 44_100, 48_000])
def test_a_recording_of_any_rate_becomes_a_voice(rate: int, either_model: Model) -> None:
    voice = enroll(
        either_model, recording(1.0, rate, text=" hello \n", name="ann"), keep_audio=True
    )
    assert (voice.prompt_text, voice.name, voice.source_rate) == ("hello", "ann", rate)
    assert (voice.mel.shape, voice.speech_tokens.dtype) == ((50, 80), np.int32)
    config = either_model.config
    assert (voice.family, voice.fingerprint) == (config.family, config.fingerprint)
    assert voice.created
    check_fits(voice, either_model.config.voice_format)
    assert from_bytes(to_bytes(voice), "f").content_hash == voice.content_hash


@pytest.mark.parametrize(
    "audio",
    [recording(0.5), recording(30.0), recording(1.0, loudness=0.0), recording(1, 16_000, 9)],
)
def test_the_shortest_the_longest_silence_and_clipping(audio: Recording, model: Model) -> None:
    voice = enroll(model, audio)
    assert len(voice.speech_tokens) == int(audio.seconds * 25)
    check_fits(voice, model.config.voice_format)


def with_silence(audio: Recording, seconds: float) -> Recording:
    """At both ends."""
    return replace(audio, samples=np.pad(audio.samples, round(seconds * audio.rate)))


def test_silence_is_no_part_of_a_voice_where_the_encoder_has_not_learnt_it(model: Model) -> None:
    assert model.config.speaker_encoder
    encoder = replace(model.config.speaker_encoder, takes_silence=False)
    careful = replace(model, config=replace(model.config, speaker_encoder=encoder))
    audio = recording(1.0)
    hushed = [enroll(careful, with_silence(audio, seconds)) for seconds in (0.5, 1.0)]
    np.testing.assert_allclose(hushed[0].embedding, hushed[1].embedding, atol=1e-4)
    assert [len(voice.speech_tokens) for voice in hushed] == [50, 75]
    for same in (audio, with_silence(audio, 0.05), recording(1.0, loudness=0.0)):
        found, expected = (enroll(either, same).content_hash for either in (careful, model))
        assert found == expected
    assert (
        np.abs(enroll(model, with_silence(audio, 0.5)).embedding - hushed[0].embedding).max() > 0.01
    )


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        ("", False),
        ("hello there", False),
        ("oh", True),
        ("hello " * 20, True),
        ("You are a helpful assistant.<|endofprompt|>hello there", False),
        ("You are a helpful assistant.<|endofprompt|>oh", True),
    ],
)
def test_a_transcript_that_does_not_fit_is_a_warning(
    text: str, warned: bool, model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    enroll(model, recording(2.0, text=text, name="ann"))
    assert ("repeats words" in caplog.text) is warned


@pytest.mark.parametrize(
    ("audio", "message"),
    [
        (recording(31.0), "31.0 s long; at most 30 s"),
        (recording(0.1), "0.10 s long, at least 0.5 s"),
        (Recording(np.zeros(0, np.float32), 16_000), "0.00 s long"),
        (Recording(np.full(16_000, np.nan, np.float32), 16_000), "finite samples"),
        (Recording(np.full(16_000, np.inf, np.float32), 16_000), "finite samples"),
        (Recording(np.zeros((16_000, 2), np.float32), 16_000), "one channel"),
        (Recording(np.zeros(16_000, np.float32), 0), "at 0 Hz, it must be"),
        (Recording(np.zeros(16_000, np.float32), -1), "at -1 Hz"),
        (Recording(np.zeros(8_000_009, np.float32), 8_000_009), "must be at 8000..192000 Hz"),
    ],
)
def test_what_is_no_recording(audio: Recording, message: str, model: Model) -> None:
    with pytest.raises(VoiceError, match=message):
        enroll(model, audio)


def test_texts_must_be_unicode(model: Model) -> None:
    for texts in ({"text": "\ud800"}, {"name": "\udfff"}):
        with pytest.raises(VoiceError, match="surrogate"):
            enroll(model, recording(1.0, **texts))


def test_a_model_without_prompt_encoders(model: Model) -> None:
    with pytest.raises(InputError, match="can't learn a voice"):
        enroll(replace(model, speaker_encoder=None), recording(1.0))


def test_published_encoders_make_voices(cosyvoice2_folder: Path, token2wav_folder: Path) -> None:
    """The same files give the same voice, whatever the flow beside them is."""
    unet, dit = load_folder(cosyvoice2_folder), load_folder(token2wav_folder)
    first, second = (enroll(model, recording(2.0, text="a")) for model in (unet, dit))
    assert first.content_hash == second.content_hash
    check_fits(first, dit.config.voice_format)
    check_fits(second, unet.config.voice_format)


def test_a_voice_of_another_model(model: Model) -> None:
    voice = enroll(model, recording(1.0, text="hello", name="ann"))
    check_fits(replace(voice, fingerprint=""), model.config.voice_format)  # imported: nobody knows
    for other, message in (
        (replace(voice, fingerprint="other"), "made by another model"),
        (replace(voice, family="cosyvoice3"), "is of family 'cosyvoice3'"),
        (replace(voice, embedding=voice.embedding[:80]), "an embedding of 80"),
        (replace(voice, mel=voice.mel[:, :40]), "40 mel bins"),
        (replace(voice, speech_tokens=voice.speech_tokens + 6561), "tokens above 6560"),
    ):
        with pytest.raises(VoiceError, match=rf"voice 'ann' .*{message}"):
            check_fits(other, model.config.voice_format)


def test_a_voice_of_another_family_is_made_anew(either_model: Model) -> None:
    """Of its recording, where it has kept it."""
    expected = enroll(either_model, recording(1.0, text="hello", name="ann"), keep_audio=True)
    other = replace(expected, family="another", speech_tokens=0 * expected.speech_tokens)
    found = made_anew(either_model, other)
    assert found.content_hash == expected.content_hash
    assert found.source is not None
    assert made_anew(either_model, expected) is expected
    forgetful = replace(other, source=None)
    assert made_anew(either_model, forgetful) is forgetful


def test_an_lm_alone_can_be_asked_too(model: Model) -> None:
    voice = enroll(model, recording(1.0, text="hello"))
    lm_alone = replace(model, token2wavs=(), config=replace(model.config, flow=None))
    check_fits(voice, lm_alone.config.voice_format)
    with pytest.raises(VoiceError, match="another model"):
        check_fits(replace(voice, fingerprint="other"), lm_alone.config.voice_format)


def test_the_first_hop_is_short(model: Model) -> None:
    for seconds in (0.5, 1.96, 2.0, 3.4, 10.0):
        voice = enroll(model, recording(seconds))
        cut = with_short_first_hop(voice)
        left = len(cut.speech_tokens) - cut.flow_start
        assert left % 25 == 15 if len(voice.speech_tokens) >= 50 else cut.flow_start == 0
        assert 0 <= cut.flow_start < 25
