"""Encoding: decoded lengths, streams that equal wholes, G.711 vectors, threads, freed memory."""

from __future__ import annotations

import io
import wave
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyserve.audio import MEDIA_TYPES, AudioFormat, Encoder, decode, encode
from cosyserve.audio.formats import is_quick
from cosyserve.audio.linear import alaw8, mulaw8
from cosyserve.contracts import Floats
from cosyserve.errors import AudioError

CODEC_FRAME = {AudioFormat.MP3: 576, AudioFormat.AAC: 1024}
TELEPHONE = {AudioFormat.MULAW: "ULAW", AudioFormat.ALAW: "ALAW"}
BARE = {AudioFormat.PCM, AudioFormat.F32, *TELEPHONE}


def speech_like(length: int) -> Floats:
    time = np.arange(length) / 24000
    tone = sum(0.1 * np.sin(2 * np.pi * hertz * time + hertz) for hertz in (150, 730, 1900))
    return (tone * (0.6 + 0.4 * np.sin(2 * np.pi * 3 * time))).astype(np.float32)


def streamed(samples: Floats, audio_format: AudioFormat, cuts: list[int]) -> bytes:
    encoder = Encoder(audio_format)
    pieces = [encoder.push(piece) for piece in np.split(samples, sorted(cuts))]
    return b"".join([*pieces, encoder.finish()])


def decoded(data: bytes, audio_format: AudioFormat) -> Floats:
    """At the rate of 24 kHz, G.711 at 8 kHz."""
    if audio_format is AudioFormat.PCM:
        return np.frombuffer(data, "<i2").astype(np.float32) / 32768
    if audio_format is AudioFormat.F32:
        return np.frombuffer(data, "<f4")
    if subtype := TELEPHONE.get(audio_format):
        raw = {"format": "RAW", "subtype": subtype, "samplerate": 8000, "channels": 1}
        return soundfile.read(io.BytesIO(data), dtype="float32", **raw)[0]
    audio = decode(data)
    return audio.samples[:: audio.rate // 24000]


def expected_lengths(audio_format: AudioFormat, length: int) -> range:
    if audio_format in TELEPHONE:
        length = -(-length // 3)
    spare = 2 * CODEC_FRAME.get(audio_format, 0)
    return range(length, length + spare + 1)


@pytest.mark.parametrize("audio_format", AudioFormat)
@given(length=st.integers(50, 30_000), cuts=st.lists(st.integers(0, 30_000), max_size=8))
@settings(max_examples=12, deadline=None)
def test_streamed_equals_whole_in_decoded_length(
    audio_format: AudioFormat, length: int, cuts: list[int]
) -> None:
    samples = speech_like(length)
    whole = decoded(encode(samples, audio_format), audio_format)
    stream = decoded(streamed(samples, audio_format, cuts), audio_format)
    assert len(stream) == len(whole)
    assert len(whole) in expected_lengths(audio_format, length)
    assert np.abs(stream - whole).max() < 1e-3


@pytest.mark.parametrize(
    ("audio_format", "delay", "error"),
    [
        (AudioFormat.WAV, 0, 2e-5),
        (AudioFormat.FLAC, 0, 2e-5),
        (AudioFormat.PCM, 0, 2e-5),
        (AudioFormat.F32, 0, 1e-9),
        (AudioFormat.OPUS, 0, 0.01),
        (AudioFormat.MP3, 529, 0.02),
        (AudioFormat.AAC, 1024, 0.01),
    ],
)
def test_the_sound_survives_and_stays_where_it_was(
    audio_format: AudioFormat, delay: int, error: float
) -> None:
    samples = speech_like(24_000)
    sound = decoded(encode(samples, audio_format), audio_format)[delay : delay + len(samples)]
    assert np.sqrt(np.mean((sound - samples) ** 2)) < error


@pytest.mark.parametrize("out_rate", [8000, 24000, 48000])
@pytest.mark.parametrize("audio_format", [f for f in AudioFormat if f not in BARE])
def test_every_format_at_other_rates(audio_format: AudioFormat, out_rate: int) -> None:
    audio = decode(encode(speech_like(24_000), audio_format, out_rate=out_rate))
    assert audio.rate == (48000 if audio_format is AudioFormat.OPUS else out_rate)
    spare = 2 * 1152 / out_rate if audio_format in CODEC_FRAME else 0
    assert 1.0 <= audio.seconds <= 1.0 + spare


def test_opus_is_exact_for_another_decoder_too() -> None:
    for length in (1, 479, 480, 481, 12_345):
        samples, rate = soundfile.read(io.BytesIO(encode(speech_like(length), AudioFormat.OPUS)))
        assert (len(samples), rate) == (length, 24000)


def test_headers_tell_the_length_when_it_is_known() -> None:
    samples = speech_like(1000)
    with wave.open(io.BytesIO(encode(samples, AudioFormat.WAV, out_rate=16000))) as file:
        assert (file.getnframes(), file.getframerate()) == (667, 16000)
    assert soundfile.info(io.BytesIO(encode(samples, AudioFormat.FLAC))).frames == 1000
    unknown = streamed(samples, AudioFormat.WAV, [])
    assert unknown[4:8] == unknown[40:44] == b"\xff\xff\xff\xff"
    assert len(soundfile.read(io.BytesIO(unknown))[0]) == 1000


def test_an_announced_length_must_come_true() -> None:
    encoder = Encoder(AudioFormat.WAV, length=10)
    encoder.push(speech_like(9))
    with pytest.raises(AudioError, match="10 samples were announced, 9 came"):
        encoder.finish()


@pytest.mark.parametrize("audio_format", AudioFormat)
def test_the_first_chunk_already_gives_bytes(audio_format: AudioFormat) -> None:
    assert Encoder(audio_format).push(speech_like(7680))


@pytest.mark.parametrize("audio_format", AudioFormat)
def test_nothing_said_is_no_error(audio_format: AudioFormat) -> None:
    encoder = Encoder(audio_format)
    assert encoder.push(speech_like(0)) + encoder.finish() or audio_format in BARE


@pytest.mark.parametrize("audio_format", [f for f in AudioFormat if f not in TELEPHONE])
def test_loud_samples_are_clipped_not_wrapped(audio_format: AudioFormat) -> None:
    loud = 9 * speech_like(12_000)
    sound = decoded(encode(loud, audio_format), audio_format)
    clipped = decoded(encode(np.clip(loud, -1, 1), audio_format), audio_format)
    assert np.array_equal(sound, clipped)


@pytest.mark.parametrize("law", TELEPHONE)
def test_g711_clips_behind_its_resampler(law: AudioFormat) -> None:
    sound = decoded(encode(np.full(12_000, 3.0, np.float32), law), law)
    assert sound[100:-100].min() > 0.98


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_samples_must_be_finite_and_mono(bad: float) -> None:
    encoder = Encoder(AudioFormat.PCM)
    with pytest.raises(AudioError, match="finite"):
        encoder.push(np.array([0.0, bad], np.float32))
    with pytest.raises(AudioError, match="mono"):
        encoder.push(np.zeros((2, 10), np.float32))


def test_a_finished_encoder_takes_no_more() -> None:
    encoder = Encoder(AudioFormat.MP3)
    encoder.finish()
    with pytest.raises(AudioError, match="finished"):
        encoder.push(speech_like(10))
    with pytest.raises(AudioError, match="finished"):
        encoder.finish()


@pytest.mark.parametrize(
    ("audio_format", "out_rate"),
    [
        (AudioFormat.OPUS, 44100),
        (AudioFormat.MP3, 96000),
        (AudioFormat.AAC, 7350),
        (AudioFormat.WAV, 0),
        (AudioFormat.FLAC, 400_000),
    ],
)
def test_rates_that_a_format_lacks(audio_format: AudioFormat, out_rate: int) -> None:
    with pytest.raises(AudioError, match=f"{out_rate}"):
        Encoder(audio_format, out_rate=out_rate)


def test_only_what_neither_codes_nor_resamples_is_quick() -> None:
    quick = {kind for kind in AudioFormat if is_quick(kind)}
    assert quick == {AudioFormat.PCM, AudioFormat.WAV, AudioFormat.F32}
    assert not is_quick(AudioFormat.PCM, 16_000)
    assert is_quick(AudioFormat.MULAW, 24_000)


def test_every_format_has_a_media_type() -> None:
    assert set(MEDIA_TYPES) == set(AudioFormat)


def test_mulaw_knows_its_vectors() -> None:
    linear = np.array([0, 1, -1, 2, -2, 100, -100, 1000, -1000, 8158, 8191, -8192])
    codes = [0xFF, 0xFE, 0x7E, 0xFE, 0x7E, 0xDF, 0x5F, 0xAF, 0x2F, 0x80, 0x80, 0x00]
    assert mulaw8((linear / 8192).astype(np.float32)).tolist() == codes


@pytest.mark.filterwarnings("ignore:'audioop'")
def test_mulaw_equals_the_standard_library() -> None:
    audioop = pytest.importorskip("audioop")
    linear = np.arange(-8192, 8192)
    expected = audioop.lin2ulaw((linear * 4).astype("<i2").tobytes(), 2)
    assert mulaw8((linear / 8192).astype(np.float32)).tobytes() == expected


@pytest.mark.filterwarnings("ignore:'audioop'")
def test_alaw_equals_the_standard_library() -> None:
    audioop = pytest.importorskip("audioop")
    linear = np.arange(-32768, 32768)
    expected = audioop.lin2alaw(linear.astype("<i2").tobytes(), 2)
    assert alaw8((linear / 32768).astype(np.float32)).tobytes() == expected


def test_encoders_work_in_any_thread() -> None:
    samples = speech_like(24_000)
    formats = [f for f in AudioFormat if f is not AudioFormat.OPUS]
    expected = {f: encode(samples, f) for f in formats}
    with ThreadPoolExecutor(4) as threads:
        for _ in range(3):
            results = threads.map(lambda f: (f, encode(samples, f)), formats)
            assert dict(results) == expected
        encoder = Encoder(AudioFormat.MP3)
        steps = [threads.submit(encoder.push, piece) for piece in np.split(samples, 2)[:1]]
        first = steps[0].result()
        assert (
            first + encoder.push(samples[12_000:]) + encoder.finish() == expected[AudioFormat.MP3]
        )


@pytest.mark.parametrize("audio_format", AudioFormat)
def test_an_encoder_dropped_half_way_is_gone(audio_format: AudioFormat) -> None:
    encoder = Encoder(audio_format)
    encoder.push(speech_like(5000))
    stream = weakref.ref(encoder._stream)
    del encoder
    assert stream() is None
