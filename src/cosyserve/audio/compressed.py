"""Formats with a codec: flac, mp3, aac and opus, framed packet by packet.

The codecs are FFmpeg's, reached through PyAV. No muxer is used, so that a packet leaves as soon
as it exists and the number of decoded samples is ours to decide.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cosyserve.audio.formats import AAC_RATES
from cosyserve.audio.linear import pcm16
from cosyserve.audio.ogg import GRANULES_PER_SECOND, OpusPages
from cosyserve.contracts import Floats

Samples = npt.NDArray[np.int16] | Floats  # in the sample format of the codec

BIT_RATE = 64_000  # clear for mono speech, and the most that mp3 allows at every sample rate

# As good as the codecs' own choice by PESQ, in four fifths of the time.
QUICKER = {"compression_level": "5"}

# Samples of silence that a decoder gives ahead of the sound.
MP3_DELAY = 576 + 529  # of the encoder, of any decoder
AAC_DELAY = 1024

STREAMINFO_BYTES = 34
STREAMINFO_BLOCK = b"\x80" + STREAMINFO_BYTES.to_bytes(3, "big")  # the only metadata block
STREAMINFO_TOTAL = slice(13, 18)  # its low 36 bits count the samples; 0 if unknown


class Codec:
    """One FFmpeg encoder, fed in whole frames. Dropping it frees it."""

    def __init__(
        self, name: str, sample_format: str, rate: int, options: dict[str, str] | None = None
    ) -> None:
        import av

        context = av.CodecContext.create(name, "w")
        assert isinstance(context, av.AudioCodecContext)
        context.sample_rate = rate
        context.layout = "mono"
        context.format = sample_format
        context.bit_rate = BIT_RATE
        context.options = options or {}
        context.open()
        self._frame_from = av.AudioFrame.from_ndarray
        self._context = context
        self._pending: Samples = (
            np.zeros(0, np.int16) if sample_format == "s16" else np.zeros(0, np.float32)
        )
        self._packets = 0  # that were encoded
        self.samples = 0  # that were pushed
        self.frame: int = context.frame_size  # samples of a packet
        self.description = bytes(context.extradata or b"")

    def push(self, samples: Samples) -> list[bytes]:
        """Packets of the frames that these samples complete."""
        self.samples += len(samples)
        samples = np.concatenate([self._pending, samples])
        whole = len(samples) // self.frame * self.frame
        self._pending = samples[whole:].copy()
        packets = []
        for start in range(0, whole, self.frame):
            packets += self._encode(samples[start : start + self.frame])
        return packets

    def drain(self) -> list[bytes]:
        """Packets of what is left, the last frame being a short one."""
        short = self._encode(self._pending) if len(self._pending) else []
        return short + self._encode(None)

    def drain_padded(self, delay: int) -> list[bytes]:
        """Packets of what is left and of `delay` samples of silence behind it."""
        due = -(-(self.samples + delay) // self.frame) - self._packets
        silence = np.zeros(self.frame - len(self._pending), np.float32)
        return (self.push(silence) + self._encode(None))[:due]

    def _encode(self, samples: Samples | None) -> list[bytes]:
        frame = None
        if samples is not None:
            frame = self._frame_from(samples[None], self._context.format.name, "mono")
            frame.sample_rate = self._context.sample_rate
        packets = [bytes(packet) for packet in self._context.encode(frame) if packet.size]
        self._packets += len(packets)
        return packets


class FlacStream:
    """Flac frames. `length` in samples is for the header; None: it isn't known yet."""

    def __init__(self, rate: int, length: int | None) -> None:
        self._codec = Codec("flac", "s16", rate)
        self._length = length or 0

    def header(self) -> bytes:
        info = bytearray(self._codec.description)
        total = int.from_bytes(info[STREAMINFO_TOTAL], "big") | self._length
        info[STREAMINFO_TOTAL] = total.to_bytes(5, "big")
        return b"fLaC" + STREAMINFO_BLOCK + info

    def push(self, samples: Floats) -> bytes:
        return b"".join(self._codec.push(pcm16(samples)))

    def finish(self) -> bytes:
        return b"".join(self._codec.drain())


class Mp3Stream:
    """Bare mp3 frames. Without a bit reservoir each stands alone, so that those which hold nothing
    but the codec's delay can be left out.
    """

    def __init__(self, rate: int) -> None:
        self._codec = Codec("libmp3lame", "fltp", rate, {"reservoir": "0", **QUICKER})
        self._silent = MP3_DELAY // self._codec.frame  # frames to leave out

    def header(self) -> bytes:
        return b""

    def push(self, samples: Floats) -> bytes:
        return self._join(self._codec.push(samples))

    def finish(self) -> bytes:
        return self._join(self._codec.drain_padded(MP3_DELAY))

    def _join(self, packets: list[bytes]) -> bytes:
        audible = packets[self._silent :]
        self._silent -= len(packets) - len(audible)
        return b"".join(audible)


class AacStream:
    """Low-complexity AAC, each packet behind an ADTS header."""

    def __init__(self, rate: int) -> None:
        self._codec = Codec("aac", "fltp", rate, {"aac_coder": "fast"})
        self._rate_index = AAC_RATES.index(rate)

    def header(self) -> bytes:
        return b""

    def push(self, samples: Floats) -> bytes:
        return self._join(self._codec.push(samples))

    def finish(self) -> bytes:
        return self._join(self._codec.drain_padded(AAC_DELAY))

    def _join(self, packets: list[bytes]) -> bytes:
        return b"".join(self._adts_header(len(packet)) + packet for packet in packets)

    def _adts_header(self, packet_bytes: int) -> bytes:
        fields = (  # value, bits
            (0xFFF, 12),  # sync word
            (0b0001, 4),  # MPEG-4, layer 0, no checksum
            (1, 2),  # low complexity
            (self._rate_index, 4),
            (0, 1),
            (1, 3),  # mono
            (0, 4),
            (7 + packet_bytes, 13),
            (0x7FF, 11),  # variable bit rate
            (0, 2),  # one AAC frame
        )
        header = 0
        for value, bits in fields:
            header = header << bits | value
        return header.to_bytes(7, "big")


class OpusStream:
    """Opus in Ogg; the last page says where the sound ends, to the sample."""

    def __init__(self, rate: int) -> None:
        self._codec = Codec("libopus", "flt", rate, QUICKER)
        self._pages = OpusPages(self._codec.description)
        self._granules_per_sample = GRANULES_PER_SECOND // rate

    def header(self) -> bytes:
        return self._pages.header()

    def push(self, samples: Floats) -> bytes:
        return self._write(self._codec.push(samples))

    def finish(self) -> bytes:
        granules = self._codec.samples * self._granules_per_sample
        delay = self._pages.pre_skip // self._granules_per_sample
        *packets, last = self._codec.drain_padded(delay)
        return self._write(packets) + self._pages.last_page(last, granules)

    def _write(self, packets: list[bytes]) -> bytes:
        return self._pages.pages(packets, self._codec.frame * self._granules_per_sample)
