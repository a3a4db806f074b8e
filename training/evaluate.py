"""What a model folder can do: words understood, naturalness, voices, lengths, speed, memory.

One command speaks every sentence of a list, whole and streamed, with the preset voices in turn,
with one, or with voices cloned from recordings, has the judges' environment listen
(`training.judges`), and keeps all of it: figures and what each judge wrote down, as JSON. Knows no
training.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import time
import wave
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

import cosyserve
from cosyserve.engine.tts import TTS
from cosyserve.text import spoken_text
from cosyserve.voices.file import load_voice, save_voice
from training.judges import RATE, Wave
from training.word_errors import word_error_rate

LISTENERS = ("moonshine", "whisper")
POOR = 2.8  # a DistillMOS below this is heard as broken
RESULTS = Path(__file__).parent / "results"
WAYS = {"whole": False, "streamed": True}
Entry = dict[str, Any]


def write_wav(file: Path, samples: Wave) -> None:
    with wave.open(str(file), "wb") as stream:
        stream.setnchannels(1)
        stream.setsampwidth(2)
        stream.setframerate(RATE)
        stream.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())


def speak(tts: TTS, texts: Sequence[str], voices: Sequence[Path], stream: bool, out: Path) -> None:
    """Writes wav files and spoken.json; sentence n has seed n and the voice whose turn it is."""
    out.mkdir(parents=True, exist_ok=True)
    said: list[Entry] = []
    for number, text in enumerate(texts):
        voice = voices[number % len(voices)]
        begun, first, pieces, finish = time.perf_counter(), 0.0, [], ""
        for chunk in tts.utter(text, load_voice(voice), stream=stream, seed=number):
            first = first or time.perf_counter() - begun
            pieces.append(chunk.samples)
            finish = chunk.finish or finish
        spent, samples = time.perf_counter() - begun, np.concatenate(pieces)
        entry = {"file": f"{number:03d}.wav", "text": text, "voice": voice.stem, "finish": finish}
        entry |= {
            "read": spoken_text(text),
            "seconds": round(len(samples) / RATE, 2),
            "spent": round(spent, 3),
        }
        said.append(entry | {"first": round(first, 3)})
        write_wav(out / said[-1]["file"], samples)
    (out / "spoken.json").write_text(json.dumps({"said": said}, ensure_ascii=False), "utf-8")


def presets(model: Path, name: str | None) -> list[Path]:
    """The voices of a model's folder: the one of this name, or all but `default`, which is one of
    them once more."""
    files = sorted((model / "voices").glob("*.safetensors"))
    chosen = [file for file in files if (file.stem == name if name else file.stem != "default")]
    if not chosen:
        names = ", ".join(file.stem for file in files) or "none"
        raise SystemExit(f"{model} has no voice {name or 'but default'}: there are {names}")
    return chosen


def cloned(tts: TTS, recordings: Path, out: Path) -> list[Path]:
    """A voice of every VOICE-NUMBER.flac, whose words are in the .txt beside it."""
    files = []
    for number, audio in enumerate(sorted(recordings.glob("*.flac"))):
        files.append(out / str(number) / f"{audio.stem.rpartition('-')[0]}.safetensors")
        files[-1].parent.mkdir(parents=True, exist_ok=True)
        save_voice(tts.voice(audio, audio.with_suffix(".txt").read_text("utf-8")), files[-1])
    return files


def figures(said: Sequence[Entry]) -> Entry:
    """What a list of judged sentences comes to."""
    marks = [e["mos"] for e in said]
    found: Entry = {
        # A listener may write it down as it was typed, or as it was read.
        f"words_missed_{name}": word_error_rate([((e["text"], e["read"]), e[name]) for e in said])
        for name in LISTENERS
    }
    found |= {"mos": float(np.mean(marks)), "mos_lowest": min(marks)}
    if "nearest" in said[0]:
        found["own_voice"] = float(np.mean([e["nearest"] == e["voice"] for e in said]))
    if "likeness" in said[0]:
        found["likeness"] = float(np.mean([e["likeness"] for e in said]))
    return {key: round(value, 4) for key, value in found.items()}


def summary(said: Sequence[Entry]) -> Entry:
    """Figures of all sentences and of each voice, and the time they took."""
    audio, spent = (sum(e[key] for e in said) for key in ("seconds", "spent"))
    found = figures(said) | {"mos_poor": sum(e["mos"] < POOR for e in said)}
    found |= {"cut_off": sum(e["finish"] != "stop" for e in said)}
    found |= {"rtf": round(spent / audio, 3), "audio_s": round(audio, 1)}
    found["first_audio_median_s"] = round(float(np.median([e["first"] for e in said])), 3)
    voices = sorted({e["voice"] for e in said})
    return found | {"voices": {v: figures([e for e in said if e["voice"] == v]) for v in voices}}


def result(model: str, title: str, found: dict[str, Entry], machine: Entry) -> str:
    """All of it as JSON, a sentence a line."""
    ways = {way: summary(spoken["said"]) for way, spoken in found.items()}
    head: Entry = {"model": model, "list": title, **machine, **ways}
    for spoken in found.values():
        if "teacher_own_voice" in spoken:
            head["teacher_own_voice"] = round(spoken["teacher_own_voice"], 4)
    lines = []
    for entries in zip(*(spoken["said"] for spoken in found.values()), strict=True):
        line = {key: entries[0][key] for key in ("text", "read", "voice")}
        for way, entry in zip(found, entries, strict=True):
            kept = ("seconds", "mos", "likeness", *LISTENERS)
            line[way] = {key: entry[key] for key in kept if key in entry}
            if entry.get("nearest", entry["voice"]) != entry["voice"]:
                line[way]["nearest"] = entry["nearest"]
        lines.append(json.dumps(line, ensure_ascii=False))
    body = json.dumps(head, indent=1, ensure_ascii=False)
    return body[:-2] + ',\n "sentences": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="model folder")
    parser.add_argument("--list", type=Path, required=True, help="text file, one sentence a line")
    parser.add_argument("--count", type=int, help="only the first so many sentences")
    parser.add_argument("--voice", help="one voice for all; without it the presets take turns")
    parser.add_argument("--clones", type=Path, help="folder of recordings to clone voices from")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--judges", type=Path, required=True, help="Python of their environment")
    parser.add_argument("--moonshine", type=Path, required=True, help="folder of its ONNX models")
    parser.add_argument("--speakers", type=Path, nargs="+", help="corpora, for resemblyzer")
    parser.add_argument("--work", type=Path, required=True, help="folder for what is spoken")
    parser.add_argument("--name", help="of the model in the results; without it the folder's")
    given = parser.parse_args()
    texts = given.list.read_text("utf-8").splitlines()[: given.count]
    voices = [] if given.clones else presets(given.model, given.voice)
    torch.set_num_threads(given.threads)
    begun = time.perf_counter()
    tts = cosyserve.load(given.model, device="cpu", dtype="float32")
    loading = time.perf_counter() - begun
    if given.clones:
        voices = cloned(tts, given.clones, given.work / "voices")
        if not voices:
            raise SystemExit(f"{given.clones} has no recording: put VOICE-NUMBER.flac files there")
    tts.say("Warm up.", load_voice(voices[0]))
    for way in given.ways:
        speak(tts, texts, voices, WAYS[way], given.work / way)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    machine = {"load_s": round(loading, 2), "memory_mb": round(peak), "threads": given.threads}
    folders = {way: (given.work / way).resolve() for way in given.ways}
    command = [given.judges, "-m", "training.judges", *folders.values()]
    command += ["--moonshine", given.moonshine.resolve()]
    command += ["--speakers", *(c.resolve() for c in given.speakers)] if given.speakers else []
    subprocess.run(command, check=True, cwd=Path(__file__).parent.parent)
    found = {way: json.loads((f / "spoken.json").read_text("utf-8")) for way, f in folders.items()}
    model, title = given.name or given.model.name, given.list.stem
    title += f"-{given.voice}" if given.voice else "-clones" if given.clones else ""
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-{model}-{title}.json"
    file.write_text(result(model, title, found, machine), "utf-8")
    print(file)


if __name__ == "__main__":
    main()
