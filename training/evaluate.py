"""What a model folder can do: words understood, naturalness, lengths, speed.

Speaks sentences with the preset voices in turn and asks whichever judges are installed: moonshine
and whisper for words, DistillMOS for naturalness, resemblyzer for voices. The judges' packages may
live elsewhere: `speak` writes wav files and a list, `judge` reads them. Knows no training.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import time
import wave
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

RATE, NARROW = 24_000, 16_000
REFERENCES, TRIALS = 8, 4  # utterances of a voice
Wave = npt.NDArray[Any]
Reading = Callable[[int], list[str]]


def plain(text: str, read: Reading | None = None) -> list[str]:
    """Lower-case words without punctuation, numbers as words (as `read` says, or as counts)."""
    text = text.lower().replace("-", " ").replace("’", "'").replace("%", " percent")
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    text = re.sub(r"\$(\d+)\.(\d\d)", r"\1 dollars and \2 cents", text)
    text = re.sub(r"\$(\d+)", r"\1 dollars", text)
    text = re.sub(r"(\d+)\.(\d+)", lambda m: f"{m[1]} point {' '.join(m[2])}", text)
    text = re.sub(r"(\d+)(st|nd|rd|th)?", partial(_number, read or _cardinal), text)
    words = re.sub(r"[^a-z' ]", " ", text).split()
    return [word.strip("'") for word in words]


ONES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
ONES += ["eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"]
ONES += ["nineteen"]
TENS = ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
ORDINALS = {"one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth"}
ORDINALS |= {"nine": "ninth", "twelve": "twelfth"}


def _number(read: Reading, found: re.Match[str]) -> str:
    words = read(int(found[1]))
    if found[2]:
        last = words[-1]
        regular = last[:-1] + "ieth" if last.endswith("y") else last + "th"
        words[-1] = ORDINALS.get(last, regular)
    return f" {' '.join(words)} "


def _cardinal(number: int) -> list[str]:
    """As the sentences of the corpus say it: with `and` before the tens."""
    if number < 20:
        return [ONES[number]]
    if number < 100:
        return [TENS[number // 10], *(_cardinal(number % 10) if number % 10 else [])]
    for size, name in ((10**9, "billion"), (10**6, "million"), (1000, "thousand")):
        if number >= size:
            rest = number % size
            return [*_cardinal(number // size), name, *(_cardinal(rest) if rest else [])]
    rest = number % 100
    return [ONES[number // 100], "hundred", *(["and", *_cardinal(rest)] if rest else [])]


def _in_pairs(number: int) -> list[str]:
    """As years are said: nineteen oh six, eighteen hundred."""
    century, rest = divmod(number, 100)
    if not 10 <= century < 100 or century % 10 == 0:
        return _cardinal(number)
    if rest == 0:
        return [*_cardinal(century), "hundred"]
    return [*_cardinal(century), *(["oh"] if rest < 10 else []), *_cardinal(rest)]


def _by_digit(number: int) -> list[str]:
    return [ONES[int(digit)] for digit in str(number)]


def word_errors(said: str, heard: str) -> tuple[int, int]:
    """Edits between the two, and words said. A listener who writes 1906 may have heard it in
    several ways: the nearest one counts."""
    words = plain(said)
    readings = (_cardinal, _in_pairs, _by_digit)
    return min(_edits(words, plain(heard, read)) for read in readings), len(words)


def _edits(a: list[str], b: list[str]) -> int:
    row = list(range(len(b) + 1))
    for i, word in enumerate(a, start=1):
        before, row[0] = row[0], i
        for j, other in enumerate(b, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (word != other))
    return row[-1]


def word_error_rate(pairs: list[tuple[str, str]]) -> float:
    """Of (said, heard); a listener that runs away counts as one that heard nothing."""
    counts = [word_errors(said, heard) for said, heard in pairs]
    return sum(min(errors, words) for errors, words in counts) / sum(words for _, words in counts)


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


class Speakers:
    """Whose voice is nearest, by resemblyzer; `teacher`: how often that is right for the corpus."""

    def __init__(self, corpus: Path) -> None:
        import resemblyzer
        import soundfile

        self._encoder = resemblyzer.VoiceEncoder("cpu", verbose=False)
        heard: dict[str, list[Wave]] = {}
        with (corpus / "index.tsv").open(encoding="utf-8") as stream:
            for row in csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE):
                mine = heard.setdefault(row["voice"], [])
                if row["lang"] == "en" and len(mine) < REFERENCES + TRIALS:
                    start = int(row["start"])
                    stop = start + int(row["samples"])
                    samples, _ = soundfile.read(corpus / row["file"], start=start, stop=stop)
                    mine.append(self._embedding(narrow(samples)))
        english = {voice: found for voice, found in heard.items() if found}
        self._voices = list(english)
        self._means = np.stack([np.mean(e[:REFERENCES], 0) for e in english.values()])
        right = [self._nearest(x) == v for v, e in english.items() for x in e[REFERENCES:]]
        self.teacher = float(np.mean(right))

    def nearest(self, x: Wave) -> str:
        return self._nearest(self._embedding(x))

    def _embedding(self, x: Wave) -> Wave:
        import resemblyzer

        return np.asarray(self._encoder.embed_utterance(resemblyzer.preprocess_wav(x, NARROW)))

    def _nearest(self, embedding: Wave) -> str:
        return self._voices[int(np.argmax(self._means @ embedding))]


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
    speakers = Speakers(given.speakers) if given.speakers else None
    for entry in found["said"]:
        x = narrow(read_wav(given.out / entry["file"]))
        for name, hear in listeners.items():
            entry[name] = hear(x)
        if mos:
            entry["mos"] = mos(x)
        if speakers:
            entry["nearest"] = speakers.nearest(x)
    summary = found["summary"]
    for name in listeners:
        pairs = [(entry["text"], entry[name]) for entry in found["said"]]
        summary[f"wer_{name}"] = word_error_rate(pairs)
    if mos:
        summary["mos"] = float(np.mean([e["mos"] for e in found["said"]]))
    if speakers:
        summary["own_voice_nearest"] = float(
            np.mean([e["nearest"] == e["voice"] for e in found["said"]])
        )
        summary["teacher_own_voice_nearest"] = speakers.teacher
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
    parser.add_argument("--speakers", type=Path, help="judge: corpus, for resemblyzer")
    given = parser.parse_args()
    (speak if given.what == "speak" else judge)(given)


if __name__ == "__main__":
    main()
