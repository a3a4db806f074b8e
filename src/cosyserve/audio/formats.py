"""The formats that speech can leave in: names, media types, sample rates."""

from __future__ import annotations

from enum import StrEnum

from cosyserve.contracts import SAMPLE_RATE
from cosyserve.errors import AudioError

MIN_RATE, MAX_RATE = 8_000, 192_000
TELEPHONE_RATE = 8_000


class AudioFormat(StrEnum):
    """A format of mono speech; PCM samples are 16-bit unless it says more."""

    WAV = "wav"
    FLAC = "flac"
    PCM = "pcm"  # bare samples, little-endian
    MP3 = "mp3"
    OPUS = "opus"  # in Ogg
    AAC = "aac"  # in ADTS
    F32 = "f32"  # bare samples of 32-bit floating point, little-endian
    MULAW = "mulaw"  # bare G.711 bytes
    ALAW = "alaw"


MEDIA_TYPES = {
    AudioFormat.WAV: "audio/wav",
    AudioFormat.FLAC: "audio/flac",
    AudioFormat.PCM: "audio/pcm",
    AudioFormat.MP3: "audio/mpeg",
    AudioFormat.OPUS: "audio/ogg; codecs=opus",
    AudioFormat.AAC: "audio/aac",
    AudioFormat.F32: "audio/pcm;encoding=float;bits=32",
    AudioFormat.MULAW: "audio/basic",
    AudioFormat.ALAW: "audio/PCMA",
}

CODEC_FORMATS = frozenset({AudioFormat.FLAC, AudioFormat.MP3, AudioFormat.OPUS, AudioFormat.AAC})
TELEPHONE_FORMATS = frozenset({AudioFormat.MULAW, AudioFormat.ALAW})

# In the order of the 4-bit rate index that an ADTS header carries.
AAC_RATES = (96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000)

# Formats that are missing here take any rate of MIN_RATE..MAX_RATE.
CODED_RATES: dict[AudioFormat, tuple[int, ...]] = {
    AudioFormat.MP3: (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000),
    AudioFormat.OPUS: (8000, 12000, 16000, 24000, 48000),
    AudioFormat.AAC: AAC_RATES,
}


def is_quick(audio_format: AudioFormat, rate: int | None = None) -> bool:
    """Whether speech is encoded in less time than a thread takes to be asked for it: no codec and
    no resampler is in its way."""
    return audio_format not in CODEC_FORMATS and output_rate(audio_format, rate) == SAMPLE_RATE


def output_rate(audio_format: AudioFormat, rate: int | None = None) -> int:
    """The rate to encode at: `rate` if the format can have it, without one the format's own."""
    if rate is None:
        return TELEPHONE_RATE if audio_format in TELEPHONE_FORMATS else SAMPLE_RATE
    rates = CODED_RATES.get(audio_format)
    if rates and rate not in rates:
        listed = ", ".join(map(str, sorted(rates)))
        raise AudioError(f"{audio_format} can't be {rate} Hz; choose one of {listed}")
    if not MIN_RATE <= rate <= MAX_RATE:
        raise AudioError(f"sample rate must be {MIN_RATE}..{MAX_RATE} Hz, got {rate}")
    return rate
