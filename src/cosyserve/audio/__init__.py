"""Sound in and out: decode, resample, features, encode.

It imports no torch, so that the gateway starts in a second.
"""

from cosyserve.audio.decode import Audio, decode
from cosyserve.audio.encode import Encoder, encode
from cosyserve.audio.features import kaldi_fbank, prompt_mel, speaker_fbank, whisper_log_mel
from cosyserve.audio.formats import MEDIA_TYPES, AudioFormat
from cosyserve.audio.resample import StreamResampler, resample

__all__ = [
    "MEDIA_TYPES",
    "Audio",
    "AudioFormat",
    "Encoder",
    "StreamResampler",
    "decode",
    "encode",
    "kaldi_fbank",
    "prompt_mel",
    "resample",
    "speaker_fbank",
    "whisper_log_mel",
]
