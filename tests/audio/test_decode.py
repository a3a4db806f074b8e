"""Decoding: every accepted format, every limit, and files that mean harm."""

from __future__ import annotations

import contextlib
import io
import struct
from pathlib import Path

import av
import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyserve.audio import Audio, AudioFormat, Encoder, decode, encode
from cosyserve.errors import AudioError

SAMPLES = (0.4 * np.sin(np.arange(24_000) * 0.1)).astype(np.float32)
SIGNATURES = [
    b"RIFF\0\0\0\0WAVEfmt ",
    b"fLaC\0",
    b"OggS\0",
    b"ID3\4",
    b"\xff\xfb",
    b"\xff\xf1",
    b"\0\0\0\x20ftypM4A ",
    b"\x1a\x45\xdf\xa3",
]


def wav(
    data: bytes, *, tag: int = 1, channels: int = 1, rate: int = 24000, bits: int = 16
) -> bytes:
    block = channels * bits // 8
    header = struct.pack("<HHIIHH", tag, channels, rate, rate * block, block, bits)
    chunks = b"WAVEfmt " + struct.pack("<I", 16) + header
    chunks += b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(chunks)) + chunks


def muxed(container_format: str, codec: str) -> bytes:
    """One second in stereo at 48 kHz, with another writer than ours."""
    file = io.BytesIO()
    stereo = np.repeat(SAMPLES, 2)[None].repeat(2, axis=0)
    with av.open(file, "w", format=container_format) as container:
        stream = container.add_stream(codec, rate=48000, layout="stereo")
        frame = av.AudioFrame.from_ndarray(stereo, "fltp", "stereo")
        frame.sample_rate = 48000
        for piece in av.AudioResampler(stream.format, "stereo", 48000).resample(frame):
            container.mux(stream.encode(piece))
        container.mux(stream.encode(None))
    return file.getvalue()


def written(file_format: str, subtype: str, samples: np.ndarray = SAMPLES) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, 24000, format=file_format, subtype=subtype)
    return file.getvalue()


def video() -> bytes:
    file = io.BytesIO()
    with av.open(file, "w", format="matroska") as container:
        stream = container.add_stream("mpeg4", rate=24)
        stream.width = stream.height = 32
        stream.pix_fmt = "yuv420p"
        picture = av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8), format="rgb24")
        container.mux(stream.encode(picture))
        container.mux(stream.encode(None))
    return file.getvalue()


BARE = {AudioFormat.PCM, AudioFormat.F32, AudioFormat.MULAW, AudioFormat.ALAW}
FILES = {
    **{f.value: encode(SAMPLES, f) for f in AudioFormat if f not in BARE},
    "m4a": muxed("ipod", "aac"),
    "webm": muxed("webm", "libopus"),
    "ogg": written("OGG", "VORBIS", np.random.default_rng(0).uniform(-0.3, 0.3, 24_000)),
    "wav 24 bit": written("WAV", "PCM_24"),
    "wav float": written("WAV", "FLOAT"),
    "flac 24 bit": written("FLAC", "PCM_24"),
    "mp3 with a header": written("MP3", "MPEG_LAYER_III"),
}


@pytest.mark.parametrize("name", FILES)
def test_every_accepted_format(name: str) -> None:
    audio = decode(FILES[name])
    assert audio.samples.ndim == 1
    assert audio.samples.dtype == np.float32
    assert 1.0 <= audio.seconds < 1.1


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (wav(np.array([0, 16384, -32768], "<i2").tobytes()), [0, 0.5, -1]),
        (wav(np.array([0, 16384, -32768, 0], "<i2").tobytes(), channels=2), [0.25, -0.5]),
        (wav(bytes([0, 128, 192]), bits=8), [-1, 0, 0.5]),
        (wav(np.array([0.25, -1.5], "<f4").tobytes(), tag=3, bits=32), [0.25, -1.5]),
        (wav(np.array([0.25, -0.5], "<f8").tobytes(), tag=3, bits=64), [0.25, -0.5]),
        (wav(bytes.fromhex("000040 0000c0"), bits=24), [0.5, -0.5]),
    ],
)
def test_samples_are_scaled_and_channels_averaged(data: bytes, expected: list[float]) -> None:
    assert decode(data).samples.tolist() == expected


def test_a_path_bytes_and_a_stream_are_the_same(tmp_path: Path) -> None:
    data = FILES["flac"]
    path = tmp_path / "voice.flac"
    path.write_bytes(data)
    for source in (path, str(path), io.BytesIO(data)):
        assert np.array_equal(decode(source).samples, decode(data).samples)


def test_a_streamed_file_may_not_know_its_length() -> None:
    for audio_format in (AudioFormat.WAV, AudioFormat.FLAC):
        encoder = Encoder(audio_format)
        data = encoder.push(SAMPLES) + encoder.finish()
        assert len(decode(data).samples) == len(SAMPLES)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "empty"),
        (b"RIFF", "not an audio file"),
        (b"#EXTM3U\nhttp://localhost/secret.wav", "not an audio file"),
        (b"ffconcat version 1.0\nfile /etc/hostname", "not an audio file"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "not an audio file"),
        (b"RIFF\x04\0\0\0AVI LIST" + bytes(100), "not an audio file"),
        (video(), "no audio track"),
        (wav(b""), "no samples"),
        (wav(bytes(400), channels=0), "0 channels"),
        (wav(bytes(400), rate=0), "damaged"),
        (wav(bytes(400), rate=7999), "8000..192000 Hz, the file's is 7999"),
        (wav(bytes(400), rate=192_001), "8000..192000 Hz"),
        (wav(bytes(400), tag=0x11, bits=4), "adpcm_ima_wav"),
        (wav(bytes(400), tag=0x1234), "unknown codec"),
        (wav(np.array([0, np.nan], "<f4").tobytes(), tag=3, bits=32), "nan"),
        (wav(np.array([0, np.inf], "<f4").tobytes(), tag=3, bits=32), "inf"),
        (wav(np.array([0, 1e300], "<f8").tobytes(), tag=3, bits=64), "far larger"),
        (wav(bytes(40_000))[:20_000], r"declares 0.83 s, only 0.42 s"),
        (b"RIFF\0\0\0\x70" + wav(bytes(400))[8:], "cut off"),
    ],
)
def test_the_message_names_the_problem(data: bytes, problem: str) -> None:
    with pytest.raises(AudioError, match=problem):
        decode(data)


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.wav", "/dev/zero", "a\0b"):
        with pytest.raises(AudioError, match="is not a file"):
            decode(path)


class Endless(io.RawIOBase):
    def __init__(self, beginning: bytes) -> None:
        self.beginning, self.bytes_read = beginning, 0

    def read(self, size: int = -1) -> bytes:
        piece, self.beginning = self.beginning or bytes(size), b""
        self.bytes_read += len(piece)
        return piece


def test_bytes_are_counted_while_reading() -> None:
    stream = Endless(FILES["wav"])
    with pytest.raises(AudioError, match="larger than 100000 bytes"):
        decode(stream, max_bytes=100_000)
    assert stream.bytes_read < 300_000
    with pytest.raises(AudioError, match="larger than 100 bytes"):
        decode(FILES["wav"], max_bytes=100)


@pytest.mark.parametrize("audio_format", [AudioFormat.FLAC, AudioFormat.OPUS])
def test_seconds_are_counted_while_decoding(audio_format: AudioFormat) -> None:
    bomb = encode(np.zeros(24_000 * 30, np.float32), audio_format)
    assert len(bomb) < 30_000
    with pytest.raises(AudioError, match="longer than 2 s"):
        decode(bomb, max_seconds=2)


def sane(audio: Audio) -> bool:
    return len(audio.samples) > 0 and bool((np.abs(audio.samples) <= 8).all())


@pytest.mark.parametrize("name", FILES)
def test_cut_anywhere_it_is_shorter_or_refused(name: str) -> None:
    data = FILES[name]
    whole = decode(data)
    for end in {*range(1, 200, 13), *range(200, len(data), len(data) // 40), len(data) - 1}:
        try:
            audio = decode(data[:end])
        except AudioError:
            continue
        assert sane(audio)
        assert len(audio.samples) <= len(whole.samples)


@pytest.mark.parametrize("name", FILES)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_damaged_anywhere_it_is_sane_or_refused(name: str, data: st.DataObject) -> None:
    damaged = bytearray(FILES[name])
    places = st.integers(0, 150) | st.integers(0, len(damaged) - 1)
    for place in data.draw(st.lists(places, min_size=1, max_size=10)):
        damaged[place] = data.draw(st.integers(0, 255))
    with contextlib.suppress(AudioError):
        assert sane(decode(bytes(damaged)))


@given(beginning=st.sampled_from(SIGNATURES), rest=st.binary(max_size=2000))
@settings(max_examples=100, deadline=None)
def test_noise_behind_a_signature_is_sane_or_refused(beginning: bytes, rest: bytes) -> None:
    with contextlib.suppress(AudioError):
        assert sane(decode(beginning + rest))
