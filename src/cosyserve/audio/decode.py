"""Audio files of strangers to a mono wave, within limits that hold while decoding.

What a file claims about itself is never believed: bytes are counted as they are read, samples
as they are decoded. Only the demuxers and decoders listed here ever run, and none may open
another file or address.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from cosyserve.audio.formats import MAX_RATE, MIN_RATE
from cosyserve.contracts import Floats
from cosyserve.errors import AudioError

if TYPE_CHECKING:
    from av.audio.stream import AudioStream
    from av.container import InputContainer

MAX_BYTES = 64 << 20
MAX_SECONDS = 120.0
MAX_LEVEL = 8.0  # lossy codecs overshoot 1.0, but not by 18 dB
MAX_MISSING_SECONDS = 0.25  # headers round; a recording that was cut off lacks more

READ_BYTES = 1 << 16
ACCEPTED = "wav, flac, mp3, ogg, opus, m4a, aac or webm"

SIGNATURES = (  # offset, first bytes, FFmpeg's demuxer
    (8, b"WAVE", "wav"),
    (0, b"fLaC", "flac"),
    (0, b"OggS", "ogg"),
    (0, b"ID3", "mp3"),
    (4, b"ftyp", "mov"),
    (0, b"\x1a\x45\xdf\xa3", "matroska"),
)
# Elsewhere a duration may be an estimate by the bit rate, and a recording may end anywhere.
DECLARES_DURATION = {"flac", "mov"}
RIFF_STREAMED = 0x7FFF0000  # sizes from here on stand for "unknown", each writer has its own

DECODERS = (
    *("pcm_u8", "pcm_s16le", "pcm_s24le", "pcm_s32le", "pcm_f32le", "pcm_f64le"),
    *("pcm_s16be", "pcm_s24be", "pcm_s32be", "pcm_f32be", "pcm_f64be", "pcm_alaw", "pcm_mulaw"),
    *("flac", "alac", "mp3", "mp3float", "vorbis", "opus", "libopus", "aac"),
)


@dataclass(frozen=True, eq=False)
class Audio:
    """A mono recording: samples [n] in about -1..1, at its own rate."""

    samples: Floats
    rate: int

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate


def decode(
    source: bytes | str | os.PathLike[str] | BinaryIO,
    *,
    max_bytes: int = MAX_BYTES,
    max_seconds: float = MAX_SECONDS,
) -> Audio:
    """The first audio track of a file, its channels averaged.

    Anything that isn't a sane recording within the limits is an `AudioError`, and so is one that
    ends before its header says, where a header says it: wav, flac and m4a.
    """
    data = _read(source, max_bytes)
    demuxer = _demuxer(data)
    try:
        return _decode(data, demuxer, max_seconds)
    except AudioError:
        raise
    except Exception as error:  # whatever a hostile file provokes inside the demuxer or decoder
        raise AudioError(
            f"the {demuxer} file is damaged or cut off ({_reason(error)}); export it again"
        ) from error


def _read(source: bytes | str | os.PathLike[str] | BinaryIO, max_bytes: int) -> bytes:
    if isinstance(source, bytes):
        data = source
    elif isinstance(source, str | os.PathLike):
        path = Path(source)
        try:
            if not path.is_file():  # a pipe or a device might never end, or never begin
                raise AudioError(f"{path} is not a file")
            with path.open("rb") as file:
                data = _read_stream(file, max_bytes)
        except OSError as error:
            raise AudioError(f"{path} can't be read: {error.strerror}") from error
    else:
        data = _read_stream(source, max_bytes)
    if len(data) > max_bytes:
        raise AudioError(f"the audio file is larger than {max_bytes} bytes; send a shorter one")
    if not data:
        raise AudioError(f"the audio file is empty; send {ACCEPTED}")
    return data


def _read_stream(stream: BinaryIO, max_bytes: int) -> bytes:
    """Everything, or one read more than allowed."""
    data = bytearray()
    while len(data) <= max_bytes and (piece := stream.read(READ_BYTES)):
        data += piece
    return bytes(data)


def _demuxer(data: bytes) -> str:
    for offset, signature, demuxer in SIGNATURES:
        if data.startswith(signature, offset):
            return demuxer
    if data[0] == 0xFF and len(data) > 1:
        if data[1] & 0xF6 == 0xF0:  # layer 0
            return "aac"
        if data[1] & 0xE0 == 0xE0:
            return "mp3"
    raise AudioError(f"this is not an audio file that can be read; send {ACCEPTED}")


def _decode(data: bytes, demuxer: str, max_seconds: float) -> Audio:
    import av

    options = {"codec_whitelist": ",".join(DECODERS), "protocol_whitelist": "none"}
    with av.open(
        BytesIO(data), mode="r", format=demuxer, options=options, metadata_errors="ignore"
    ) as container:
        if not container.streams.audio:
            raise AudioError("the file holds no audio track")
        stream = container.streams.audio[0]
        rate = _checked_rate(stream)
        limit = int(max_seconds * rate)
        pieces: list[Floats] = []
        length = 0
        for piece in _pieces(container, stream, rate):
            length += len(piece)
            if length > limit:
                raise AudioError(f"the recording is longer than {max_seconds:g} s; shorten it")
            pieces.append(piece)
        if not length:
            raise AudioError("the file holds no samples")
        _check_whole(data, demuxer, stream, length / rate)
    return Audio(np.concatenate(pieces), rate)


def _pieces(container: InputContainer, stream: AudioStream, rate: int) -> Iterator[Floats]:
    for frame in container.decode(stream):
        if frame.sample_rate != rate:
            raise AudioError(f"the sample rate changes from {rate} to {frame.sample_rate} Hz")
        channels = frame.layout.nb_channels
        values = _unit_scale(frame.to_ndarray())
        if not (np.abs(values) <= MAX_LEVEL).all():
            raise AudioError("samples must be numbers in -1..1; found nan, inf or far larger ones")
        planes = values if frame.format.is_planar else values.reshape(-1, channels).T
        yield planes.mean(axis=0, dtype=np.float32)


def _unit_scale(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Integer samples of any width to -1..1; floats stay as they are."""
    if values.dtype.kind == "f":
        return values
    half_range = float(1 << (8 * values.dtype.itemsize - 1))
    offset = half_range if values.dtype.kind == "u" else 0.0
    return ((values - offset) / half_range).astype(np.float32)


def _checked_rate(stream: AudioStream) -> int:
    codec = stream.codec_context
    if codec is None or codec.name not in DECODERS:
        name = "an unknown codec" if codec is None else codec.name
        raise AudioError(f"the audio track is in {name}; send {ACCEPTED}")
    if codec.channels < 1:
        raise AudioError("the audio track has 0 channels")
    rate = codec.sample_rate
    if not MIN_RATE <= rate <= MAX_RATE:
        raise AudioError(f"the sample rate must be {MIN_RATE}..{MAX_RATE} Hz, the file's is {rate}")
    return rate


def _check_whole(data: bytes, demuxer: str, stream: AudioStream, seconds: float) -> None:
    """Refuse a recording that stops before the length its file declares, if it declares one."""
    declared = 0.0
    if demuxer == "wav":
        missing_bits = 8 * (_riff_bytes(data) - len(data))
        declared = seconds + missing_bits / (stream.bit_rate or 1)
    elif demuxer in DECLARES_DURATION:
        declared = float((stream.duration or 0) * (stream.time_base or 0))
    if declared - seconds > MAX_MISSING_SECONDS:
        raise AudioError(
            f"the file is cut off: it declares {declared:.2f} s, only {seconds:.2f} s are there; "
            "send it again"
        )


def _riff_bytes(data: bytes) -> int:
    """File size by the header of a wav; 0 where its writer streamed and couldn't know."""
    size = int.from_bytes(data[4:8], "little")
    return size + 8 if size < RIFF_STREAMED else 0


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
