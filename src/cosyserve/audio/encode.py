"""Speech to bytes: `encode` a whole signal, or an `Encoder` for one that is still being spoken.

Samples are checked, resampled and clipped here; `linear` and `compressed` write the formats.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from cosyserve.audio.compressed import AacStream, FlacStream, Mp3Stream, OpusStream
from cosyserve.audio.formats import AudioFormat, output_rate
from cosyserve.audio.linear import AlawStream, FloatStream, MulawStream, PcmStream, WavStream
from cosyserve.audio.resample import StreamResampler, resampled_length
from cosyserve.contracts import SAMPLE_RATE, Floats
from cosyserve.errors import AudioError


class FormatStream(Protocol):
    """Bytes of one format, in the order header, push..., finish. Samples are mono, in -1..1."""

    def header(self) -> bytes: ...

    def push(self, samples: Floats) -> bytes: ...

    def finish(self) -> bytes: ...


class Encoder:
    """Encodes mono speech [n] chunk by chunk; the bytes of all calls, joined, are one file.

    `length` is the number of samples to come, if it is known: wav and flac tell it in their
    header. One thread at a time may use an encoder, no matter which. Dropping it frees it.
    """

    def __init__(
        self,
        audio_format: AudioFormat,
        rate: int = SAMPLE_RATE,
        out_rate: int | None = None,
        length: int | None = None,
    ) -> None:
        out_rate = output_rate(audio_format, out_rate)
        self._resampler = StreamResampler(rate, out_rate) if rate != out_rate else None
        self._length = length
        self._samples = 0
        self._started = self._finished = False
        out_length = None if length is None else resampled_length(length, rate, out_rate)
        self._stream = _open_stream(audio_format, out_rate, out_length)

    def push(self, samples: Floats) -> bytes:
        """The bytes that these samples complete; the first call also gives the header."""
        if samples.ndim != 1:
            raise AudioError(f"samples must be mono [n], got shape {list(samples.shape)}")
        if not np.isfinite(samples).all():
            raise AudioError("samples must be finite numbers, found nan or inf")
        if self._finished:
            raise AudioError("this encoder is finished; open another for more samples")
        self._samples += len(samples)
        if self._resampler:
            samples = self._resampler.push(samples)
        return self._header() + self._stream.push(_clip(samples))

    def finish(self) -> bytes:
        """The bytes that end the file."""
        if self._finished:
            raise AudioError("this encoder is already finished")
        if self._length not in (None, self._samples):
            raise AudioError(f"{self._length} samples were announced, {self._samples} came")
        self._finished = True
        rest = b""
        if self._resampler:
            tail = self._resampler.push(np.zeros(0, np.float32), last=True)
            rest = self._stream.push(_clip(tail))
        return self._header() + rest + self._stream.finish()

    def _header(self) -> bytes:
        if self._started:
            return b""
        self._started = True
        return self._stream.header()


def encode(
    samples: Floats,
    audio_format: AudioFormat,
    rate: int = SAMPLE_RATE,
    out_rate: int | None = None,
) -> bytes:
    """A whole signal [n] as one file; its header tells its exact length."""
    encoder = Encoder(audio_format, rate, out_rate, length=len(samples))
    return encoder.push(samples) + encoder.finish()


def _open_stream(audio_format: AudioFormat, rate: int, length: int | None) -> FormatStream:
    match audio_format:
        case AudioFormat.WAV:
            return WavStream(rate, length)
        case AudioFormat.FLAC:
            return FlacStream(rate, length)
        case AudioFormat.PCM:
            return PcmStream()
        case AudioFormat.MP3:
            return Mp3Stream(rate)
        case AudioFormat.OPUS:
            return OpusStream(rate)
        case AudioFormat.AAC:
            return AacStream(rate)
        case AudioFormat.F32:
            return FloatStream()
        case AudioFormat.MULAW:
            return MulawStream()
        case AudioFormat.ALAW:
            return AlawStream()


def _clip(samples: Floats) -> Floats:
    return np.clip(samples, -1.0, 1.0).astype(np.float32, copy=False)
