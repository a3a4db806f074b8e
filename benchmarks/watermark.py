"""Whether the watermark is found and nothing else is: `python -m benchmarks.watermark FILE...`

The files are speech, which is joined and cut into windows. Each window is marked, sent through a
codec or another change, and listened to; and each is listened to as it is, with many keys. Printed
are the share of marked windows that are found and the least score, by change and length; the
highest score of what has no mark; the noise that the mark is; the time that marking takes.
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import av
import numpy as np
import soundfile
import soxr

from cosyserve.audio import AudioFormat, decode, encode
from cosyserve.audio.watermark import Watermark, WatermarkStream
from cosyserve.audio.watermark_detector import detect, judge, listen
from cosyserve.contracts import SAMPLE_RATE, Floats

KEY = Watermark.of("the key of the benchmark")
CHUNK = SAMPLE_RATE // 2  # samples that are marked at once
CODECS = {"mp3": ("mp3", "libmp3lame", "s16p"), "opus": ("ogg", "libopus", "s16")}
Change = Callable[[Floats], tuple[Floats, int]]


def coded(codec: str, kbit: int) -> Change:
    container, encoder, form = CODECS[codec]

    def change(samples: Floats) -> tuple[Floats, int]:
        written = io.BytesIO()
        with av.open(written, "w", format=container) as file:
            stream = file.add_stream(encoder, rate=SAMPLE_RATE, layout="mono")
            assert isinstance(stream, av.AudioStream)
            stream.bit_rate = 1000 * kbit
            whole = np.round(np.clip(samples, -1, 1) * 32767).astype(np.int16)[None]
            frame = av.AudioFrame.from_ndarray(whole, format=form, layout="mono")
            frame.sample_rate = SAMPLE_RATE
            for packet in chain(stream.encode(frame), stream.encode(None)):
                file.mux(packet)
        audio = decode(written.getvalue())
        return audio.samples, audio.rate

    return change


def resampled(rate: int) -> Change:
    return lambda samples: (soxr.resample(samples, SAMPLE_RATE, rate), rate)


def telephone(samples: Floats) -> tuple[Floats, int]:
    code = io.BytesIO(encode(samples, AudioFormat.MULAW))
    heard, rate = soundfile.read(
        code, dtype="float32", format="RAW", subtype="ULAW", samplerate=8000, channels=1
    )
    return heard, rate


def noisy(decibels: float) -> Change:
    def change(samples: Floats) -> tuple[Floats, int]:
        noise = np.random.default_rng(0).standard_normal(len(samples)).astype(np.float32)
        gain = np.sqrt(np.mean(samples**2)) * 10 ** (-decibels / 20)
        return samples + np.float32(gain) * noise, SAMPLE_RATE

    return change


def as_if(factor: float) -> Change:
    """Faster or slower, its pitch with it."""
    return lambda samples: (soxr.resample(samples, SAMPLE_RATE * factor, SAMPLE_RATE), SAMPLE_RATE)


CHANGES: dict[str, Change] = {
    "none": lambda samples: (samples, SAMPLE_RATE),
    "a tenth as loud": lambda samples: (0.1 * samples, SAMPLE_RATE),
    "mp3, 64 kbit/s": coded("mp3", 64),
    "mp3, 32 kbit/s": coded("mp3", 32),
    "opus, 32 kbit/s": coded("opus", 32),
    "opus, 16 kbit/s": coded("opus", 16),
    "16 kHz": resampled(16_000),
    "8 kHz": resampled(8_000),
    "μ-law, 8 kHz": telephone,
    "white noise 20 dB below": noisy(20),
    "0.1 % faster": as_if(1.001),
    "1 % faster": as_if(1.01),
}


def marked(samples: Floats) -> Floats:
    stream = WatermarkStream(KEY)
    return np.concatenate(
        [stream.push(samples[at : at + CHUNK]) for at in range(0, len(samples), CHUNK)]
    )


def windows(samples: Floats, seconds: float, count: int) -> Iterator[Floats]:
    """Cuts of so many seconds, at places that nobody chose."""
    size = int(seconds * SAMPLE_RATE)
    for begin in np.random.default_rng(1).integers(0, len(samples) - size, count):
        yield samples[begin : begin + size]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--seconds", type=float, nargs="+", default=[3.0, 5.0, 10.0])
    parser.add_argument("--windows", type=int, default=100, help="marked ones of each length")
    parser.add_argument("--unmarked", type=int, default=2000, help="windows without the mark")
    parser.add_argument("--keys", type=int, default=50, help="that each of them is asked for")
    options = parser.parse_args()
    speech = np.concatenate([soundfile.read(file, dtype="float32")[0] for file in options.files])
    print(f"{len(speech) / SAMPLE_RATE / 60:.0f} min of speech", flush=True)

    began = time.process_time()
    whole = marked(speech)
    share = (time.process_time() - began) / (len(speech) / SAMPLE_RATE)
    noise = 10 * np.log10(np.mean(speech**2) / np.mean((whole - speech) ** 2))
    print(f"marking takes {share:.2%} of a core; {noise:.1f} dB below the speech", flush=True)

    for name, change in CHANGES.items():
        cells = []
        for seconds in options.seconds:
            found = [detect(KEY, *change(w)) for w in windows(whole, seconds, options.windows)]
            rate = np.mean([each.marked for each in found])
            cells.append(f"{rate:.0%} (least {min(each.score for each in found):.1f})")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)

    keys = [Watermark.of(f"another key, number {number}") for number in range(options.keys)]
    heard = (listen(w, SAMPLE_RATE) for w in windows(speech, options.seconds[0], options.unmarked))
    scores = [judge(key, cepstra).score for cepstra in heard for key in keys]
    print(f"without the mark: {len(scores)} scores, the highest {max(scores):.2f}")
    for z in (1.0, 2.0, 3.0, 4.0):
        bound = np.exp(-(z**2) / 2)
        print(f"  {np.mean(np.array(scores) >= z):.2e} reach {z}, at most {bound:.2e} should")


if __name__ == "__main__":
    main()
