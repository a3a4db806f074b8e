"""Formats without a codec: 16-bit PCM, bare or as wav, floating point, and both of G.711."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from cosyserve.contracts import Floats
from cosyserve.errors import AudioError

UNKNOWN_SIZE = 0xFFFFFFFF  # what players take for "until the stream ends"
WAV_HEADER = struct.Struct("<4sI4s4sIHHIIHH4sI")
WAV_PCM = 1
BYTES_PER_SAMPLE = 2

# G.711 in its 14-bit scale. The bias makes every segment start at a power of two.
MULAW_FULL_SCALE = 8192
MULAW_BIAS = 33
MULAW_PEAK = MULAW_FULL_SCALE - 1 - MULAW_BIAS
MULAW_FIRST_SEGMENT_BITS = 6
MULAW_SIGN = 0x80

# The other law of G.711, in its 13-bit scale. Every second bit of a code is inverted.
ALAW_FULL_SCALE = 4096
ALAW_FIRST_SEGMENT_BITS = 5
ALAW_NEGATIVE, ALAW_POSITIVE = 0x55, 0xD5


def pcm16(samples: Floats) -> npt.NDArray[np.int16]:
    """Samples in -1..1 to the nearest 16-bit step."""
    return np.asarray(np.clip(np.rint(samples * 32768.0), -32768, 32767), np.int16)


def mulaw8(samples: Floats) -> npt.NDArray[np.uint8]:
    """Samples in -1..1 to G.711 μ-law: sign, 3 bits of segment, 4 of mantissa, all inverted."""
    linear = np.rint(samples * float(MULAW_FULL_SCALE)).astype(np.int32)
    biased = np.minimum(np.abs(linear), MULAW_PEAK) + MULAW_BIAS
    segment = np.frexp(biased)[1] - MULAW_FIRST_SEGMENT_BITS
    mantissa = (biased >> (segment + 1)) & 0x0F
    sign = np.where(linear < 0, MULAW_SIGN, 0)
    return np.asarray(~(sign | segment << 4 | mantissa) & 0xFF, np.uint8)


def alaw8(samples: Floats) -> npt.NDArray[np.uint8]:
    """Samples in -1..1 to G.711 A-law: sign, 3 bits of segment, 4 of mantissa."""
    scaled = np.floor(samples * float(ALAW_FULL_SCALE)).astype(np.int32)
    linear = np.clip(scaled, -ALAW_FULL_SCALE, ALAW_FULL_SCALE - 1)
    magnitude = np.where(linear < 0, -linear - 1, linear)
    segment = np.maximum(np.frexp(magnitude)[1] - ALAW_FIRST_SEGMENT_BITS, 0)
    mantissa = (magnitude >> np.maximum(segment, 1)) & 0x0F
    inverted = np.where(linear < 0, ALAW_NEGATIVE, ALAW_POSITIVE)
    return np.asarray((segment << 4 | mantissa) ^ inverted, np.uint8)


class PcmStream:
    def header(self) -> bytes:
        return b""

    def push(self, samples: Floats) -> bytes:
        return pcm16(samples).astype("<i2", copy=False).tobytes()

    def finish(self) -> bytes:
        return b""


class WavStream(PcmStream):
    """PCM behind a RIFF header. `length` in samples; None says that it isn't known yet."""

    def __init__(self, rate: int, length: int | None) -> None:
        self._rate = rate
        self._length = length

    def header(self) -> bytes:
        if self._length is None:
            riff_size = data_size = UNKNOWN_SIZE
        else:
            data_size = self._length * BYTES_PER_SAMPLE
            riff_size = WAV_HEADER.size - 8 + data_size
            if riff_size >= UNKNOWN_SIZE:
                raise AudioError("a wav file holds at most 4 GiB; encode as flac, or in parts")
        return WAV_HEADER.pack(
            *(b"RIFF", riff_size, b"WAVE"),
            *(b"fmt ", 16, WAV_PCM, 1, self._rate, self._rate * BYTES_PER_SAMPLE),
            *(BYTES_PER_SAMPLE, 8 * BYTES_PER_SAMPLE),
            *(b"data", data_size),
        )


class MulawStream(PcmStream):
    def push(self, samples: Floats) -> bytes:
        return mulaw8(samples).tobytes()


class AlawStream(PcmStream):
    def push(self, samples: Floats) -> bytes:
        return alaw8(samples).tobytes()


class FloatStream(PcmStream):
    def push(self, samples: Floats) -> bytes:
        return samples.astype("<f4", copy=False).tobytes()
