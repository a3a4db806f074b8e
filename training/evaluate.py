"""What a model folder can do: words understood, naturalness, lengths, speed.

Speaks sentences with the preset voices in turn and asks whichever judges are installed: moonshine
and whisper for words, DistillMOS for naturalness, resemblyzer for voices. The judges' packages may
live elsewhere: `speak` writes wav files and a list, `judge` reads them. Knows no training.
"""

from __future__ import annotations

import argparse
import json
import re
import time
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

RATE, NARROW = 24_000, 16_000
NUMBERS = {"0": "zero", "1": "one", "2": "two", "3": "three", "4": "four", "5": "five"}
NUMBERS |= {"6": "six", "7": "seven", "8": "eight", "9": "nine", "10": "ten"}
Wave = npt.NDArray[Any]


def plain(text: str) -> list[str]:
    """Lower-case words without punctuation."""
    words = re.sub(r"[^a-z0-9' ]", " ", text.lower().replace("-", " ").replace("’", "'")).split()
    return [NUMBERS.get(word, word.strip("'")) for word in words]


def word_errors(said: str, heard: str) -> tuple[int, int]:
    """Edits between the two, and words said."""
    a, b = plain(said), plain(heard)
    row = list(range(len(b) + 1))
    for i, word in enumerate(a, start=1):
        before, row[0] = row[0], i
        for j, other in enumerate(b, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (word != other))
    return row[-1], len(a)


def write_wav(file: Path, samples: Wave) -> None:
    with wave.open(str(file), "wb") as stream:
        stream.setnchannels(1)
        stream.setsampwidth(2)
        stream.setframerate(RATE)
        stream.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())


def read_wav(file: Path) -> Wave:
    with wave.open(str(file)) as stream:
        return np.frombuffer(stream.readframes(stream.getnframes()), "<i2") / 32768.0


def speak(given: argparse.Namespace) -> None:
    """Speaks all sentences; writes wavs and spoken.json with times."""
    import torch

    import cosyserve
    from cosyserve.voices.file import load_voice

    torch.set_num_threads(given.threads)
    given.out.mkdir(parents=True, exist_ok=True)
    begun = time.perf_counter()
    tts = cosyserve.load(given.model, device="cpu", dtype="float32")
    loading = time.perf_counter() - begun
    voices = sorted(
        f for f in (given.model / "voices").glob("*.safetensors") if f.stem != "default"
    )
    tts.say("Warm up.", load_voice(voices[0]))
    entries: list[dict[str, Any]] = []
    for number, text in enumerate(given.sentences.read_text("utf-8").splitlines()[: given.count]):
        voice = voices[number % len(voices)]
        begun, first, pieces, finish = time.perf_counter(), 0.0, [], ""
        for chunk in tts.utter(text, load_voice(voice), stream=given.stream, seed=number):
            first = first or time.perf_counter() - begun
            pieces.append(chunk.samples)
            finish = chunk.finish or finish
        spent, samples = time.perf_counter() - begun, np.concatenate(pieces)
        name = f"{number:03d}.wav"
        write_wav(given.out / name, samples)
        entry = {"file": name, "text": text, "voice": voice.stem, "finish": finish}
        entry |= {"seconds": len(samples) / RATE, "spent": spent, "first": first}
        entries.append(entry)
    audio, spent = (sum(e[key] for e in entries) for key in ("seconds", "spent"))
    summary = {"load_s": loading, "rtf": spent / audio, "audio_s": audio}
    summary["first_audio_median_s"] = float(np.median([e["first"] for e in entries]))
    summary["cut_off"] = sum(e["finish"] != "stop" for e in entries)
    (given.out / "spoken.json").write_text(
        json.dumps({"summary": summary, "said": entries}, indent=1)
    )
    print(json.dumps(summary, indent=1))


def narrow(samples: Wave) -> Wave:
    """24 kHz to 16 kHz."""
    import soxr

    return np.asarray(soxr.resample(samples, RATE, NARROW), np.float32)


def moonshine(models: Path) -> Callable[[Wave], str]:
    import moonshine_onnx

    model = moonshine_onnx.MoonshineOnnxModel(models_dir=str(models), model_name="tiny")
    tokens = moonshine_onnx.load_tokenizer()
    return lambda x: str(tokens.decode_batch(model.generate(x[None]))[0])


def whisper(folder: Path) -> Callable[[Wave], str]:
    import faster_whisper

    model = faster_whisper.WhisperModel(str(folder), device="cpu", compute_type="int8")

    def hear(x: Wave) -> str:
        parts, _ = model.transcribe(x, language="en", beam_size=5)
        return " ".join(part.text for part in parts)

    return hear


def naturalness() -> Callable[[Wave], float]:
    import torch

    torch.version.cuda = None  # else torchaudio refuses another build
    import distillmos

    model = distillmos.ConvTransformerSQAModel().eval()

    def mos(x: Wave) -> float:
        with torch.inference_mode():
            return float(model(torch.from_numpy(0.9 * x / max(1e-6, np.abs(x).max()))[None]))

    return mos


def judge(given: argparse.Namespace) -> None:
    """Reads spoken.json and adds what the judges say."""
    file = given.out / "spoken.json"
    found = json.loads(file.read_text())
    listeners: dict[str, Callable[[Wave], str]] = {}
    if given.moonshine:
        listeners["moonshine"] = moonshine(given.moonshine)
    if given.whisper:
        listeners["whisper"] = whisper(given.whisper)
    mos = naturalness() if given.mos else None
    for entry in found["said"]:
        x = narrow(read_wav(given.out / entry["file"]))
        for name, hear in listeners.items():
            entry[name] = hear(x)
        if mos:
            entry["mos"] = mos(x)
    summary = found["summary"]
    for name in listeners:
        errors = [word_errors(e["text"], e[name]) for e in found["said"]]
        summary[f"wer_{name}"] = sum(e for e, _ in errors) / sum(n for _, n in errors)
    if mos:
        summary["mos"] = float(np.mean([e["mos"] for e in found["said"]]))
    file.write_text(json.dumps(found, indent=1))
    print(json.dumps(summary, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["speak", "judge"])
    parser.add_argument("--model", type=Path, help="speak: model folder")
    parser.add_argument("--sentences", type=Path, help="speak: text file, one sentence a line")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True, help="wavs and spoken.json")
    parser.add_argument("--moonshine", type=Path, help="judge: folder of the ONNX models")
    parser.add_argument("--whisper", type=Path, help="judge: folder of a CTranslate2 model")
    parser.add_argument("--mos", action="store_true", help="judge: DistillMOS")
    given = parser.parse_args()
    (speak if given.what == "speak" else judge)(given)


if __name__ == "__main__":
    main()
