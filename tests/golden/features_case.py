"""The golden cases of features: every output, computed from their inputs."""

from __future__ import annotations

import numpy as np

from cosyserve.audio import kaldi_fbank, prompt_mel, resample, speaker_fbank, whisper_log_mel
from cosyserve.audio.features import PROMPT_WINDOW, slaney_filters
from cosyserve.contracts import MEL_BINS, SAMPLE_RATE

RESAMPLED = (  # source of the signal, its rate, the new rate
    ("w16_i16", 16000, 24000),
    ("w24_i16", 24000, 16000),
    ("w44_i16", 44100, 16000),
    ("w44_i16", 44100, 24000),
    ("w48_i16", 48000, 16000),
    ("w48_i16", 48000, 24000),
    ("w22_i16", 22050, 16000),
    ("w22_i16", 22050, 24000),
)
UNCROPPED = {(44100, 16000), (22050, 24000), (48000, 16000)}
CROP = 1500  # samples kept at each end of the other resampled signals


def features_case(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`*_i16` [1, n] int16 -> every output by its golden name, in its golden shape."""
    waves = {
        name: array[0].astype(np.float32) / 32768
        for name, array in arrays.items()
        if name.endswith("_i16")
    }
    outputs = {
        "mel24": prompt_mel(waves["w24_i16"]).T[None],
        "logmel16": whisper_log_mel(waves["w16_i16"]),
        "fbank16_raw": kaldi_fbank(waves["w16_i16"]),
        "fbank16": speaker_fbank(waves["w16_i16"]),
    }
    for source, from_rate, to_rate in RESAMPLED:
        signal = resample(waves[source], from_rate, to_rate)
        name = f"rs_{from_rate}_{to_rate}"
        outputs[f"{name}_len"] = np.int64(len(signal))
        if (from_rate, to_rate) not in UNCROPPED:
            signal = np.concatenate([signal[:CROP], signal[-CROP:]])
        outputs[name] = signal[None]
    return outputs


def cosyvoice3_features_case(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    wave = arrays["w24_i16"][0].astype(np.float32) / 32768
    return {
        "mel24": prompt_mel(wave, SAMPLE_RATE / 2).T[None],
        "mel24_fmax8000": prompt_mel(wave).T[None],
        "mel_filters": slaney_filters(SAMPLE_RATE, PROMPT_WINDOW, MEL_BINS, SAMPLE_RATE / 2),
    }
