"""More speech: a teacher speaks sentences in its own voices and in others between and beyond them.

The teacher is Kokoro-82M as an ONNX file. Its graph computes how long every phoneme lasts but does
not tell, so that value is made an output. Writes a corpus that `training.data` reads. Knows no
student.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cosyserve.contracts import SAMPLE_RATE

if TYPE_CHECKING:
    from onnx import ModelProto

Wave = npt.NDArray[np.float32]
# phonemes, style, speed -> samples, durations
Speak = Callable[[str, Wave, float], tuple[Wave, list[int]]]

STYLE = 256  # values; a voice has a row of them for every number of phonemes
TIMBRE = 128  # of them; the others are its prosody
PAUSE = SAMPLE_RATE // 10  # between utterances of a file
KEPT_SILENCE = 1920  # samples, at both ends
FRAME = 240
SILENT = 0.01  # of the loudest frame
LEVEL = 10 ** (-22 / 20)  # of frames that are not silent
SAME_SEX = 0.9  # of the mixtures
BEYOND_PART = 0.4  # of them lie beyond a voice, seen from another: clones need these, too
BEYOND = (0.15, 0.45)  # by this much of the distance
OTHER_PROSODY = 0.4  # of them have the prosody of one voice more
ASIDE_PART = 0.6  # of them have a timbre that no mixture has: microphones and strangers do, too
ASIDE = (0.4, 2.0)  # by this much in any direction; a teacher's voice is 1.6 from their mean
FORMANTS = 0.08  # how far speakers differ in size: the deviation of its logarithm
LARGEST, SMALLEST = 0.8, 1.25
COLUMNS = ("id", "file", "start", "samples", "lang", "voice", "text")
COLUMNS += ("phonemes", "durations", "trim", "formants")


@dataclass(frozen=True)
class Speaker:
    """A voice, or several in parts that add up to one; one part may be below nothing.

    `prosody` is the voice whose pace and melody it has. With `formants` above one it is smaller:
    pitch and formants are so much higher, and the pace is the same. `aside` is added to the timbre,
    all of it or nothing."""

    name: str
    parts: dict[str, float]
    prosody: str | None = None
    formants: float = 1.0
    aside: tuple[float, ...] = ()

    def style(self, voices: dict[str, Wave], phonemes: int) -> Wave:
        def row(name: str) -> Wave:
            return voices[name][min(phonemes, len(voices[name]) - 1)]

        rows = [part * row(name) for name, part in self.parts.items()]
        style: Wave = np.sum(rows, axis=0, dtype=np.float32)
        if self.prosody:
            style[TIMBRE:] = row(self.prosody)[TIMBRE:]
        if self.aside:
            style[:TIMBRE] += np.array(self.aside, np.float32)
        return style

    def say(
        self, teacher: Speak, phonemes: str, voices: dict[str, Wave]
    ) -> tuple[Wave, list[int], int]:
        """Samples, durations of the marks in the teacher's time, and samples cut off in front."""
        import soxr

        style = self.style(voices, len(phonemes))
        wave, durations = teacher(phonemes, style, 1 / self.formants)
        if self.formants != 1:
            wave = soxr.resample(wave, SAMPLE_RATE * self.formants, SAMPLE_RATE)
        wave, trim = trimmed(wave)
        return wave, durations, trim


def mixtures(names: list[str], count: int, draw: random.Random) -> list[Speaker]:
    """Speakers of two or three voices, of any size; the second letter of a name says the sex."""
    found = []
    for number in range(count):
        first = draw.choice(names)
        alike = draw.random() < SAME_SEX
        others = [n for n in names if n != first and (n[1] == first[1]) == alike]
        chosen = [first, *draw.sample(others, min(len(others), draw.choice((1, 1, 2))))]
        if len(chosen) > 1 and draw.random() < BEYOND_PART:
            further = draw.uniform(*BEYOND)
            parts = {first: 1 + further, chosen[1]: -further}
        else:
            weights = [draw.uniform(0.3, 1.0) for _ in chosen]
            parts = {name: w / sum(weights) for name, w in zip(chosen, weights, strict=True)}
        prosody = draw.choice(names) if draw.random() < OTHER_PROSODY else None
        formants = min(max(draw.lognormvariate(0, FORMANTS), LARGEST), SMALLEST)
        aside = _somewhere(draw.uniform(*ASIDE), draw) if draw.random() < ASIDE_PART else ()
        found.append(Speaker(f"mix_{number:03d}", parts, prosody, round(formants, 3), aside))
    return found


def _somewhere(far: float, draw: random.Random) -> tuple[float, ...]:
    """So far away from a timbre, in any direction."""
    values = [draw.gauss(0, 1) for _ in range(TIMBRE)]
    return tuple(far * value / math.hypot(*values) for value in values)


def trimmed(wave: Wave) -> tuple[Wave, int]:
    """With little silence at both ends and at one level; how many samples were cut in front."""
    frames = len(wave) // FRAME
    loud = np.sqrt(np.square(wave[: frames * FRAME].reshape(frames, FRAME)).mean(1))
    heard = np.flatnonzero(loud > SILENT * loud.max())
    first = max(0, int(heard[0]) * FRAME - KEPT_SILENCE)
    end = min(len(wave), (int(heard[-1]) + 1) * FRAME + KEPT_SILENCE)
    cut = wave[first:end] * (LEVEL / np.sqrt(np.square(loud[heard]).mean()))
    return (cut * min(1.0, 0.95 / np.abs(cut).max())).astype(np.float32), first


def telling_durations(model: ModelProto) -> ModelProto:
    """The same graph with the length of every phoneme, in frames of 600 samples, as an output."""
    import onnx

    clipped = next(node.output[0] for node in model.graph.node if node.op_type == "Clip")
    model.graph.output.append(onnx.helper.make_empty_tensor_value_info(clipped))
    return model


class Teacher:
    def __init__(self, model: Path, symbols: dict[str, int]) -> None:
        import onnx
        import onnxruntime

        graph = telling_durations(onnx.load(model)).SerializeToString()
        self._session = onnxruntime.InferenceSession(graph)
        self._names = [given.name for given in self._session.get_inputs()]
        self._symbols = symbols

    def __call__(self, phonemes: str, style: Wave, speed: float) -> tuple[Wave, list[int]]:
        ids = [0, *(self._symbols[mark] for mark in phonemes), 0]
        given: list[Any] = [np.array([ids]), style[None], np.array([speed], np.float32)]
        wave, durations = self._session.run(None, dict(zip(self._names, given, strict=True)))
        return wave.ravel(), durations.ravel().astype(int).tolist()


def speak(
    teacher: Speak,
    sentences: list[tuple[str, str]],
    speakers: list[Speaker],
    voices: dict[str, Wave],
    out: Path,
) -> None:
    """The speakers in turn, a file each."""
    import soundfile

    out.mkdir(parents=True, exist_ok=True)
    with (out / "index.tsv").open("w", encoding="utf-8") as stream:
        stream.write("\t".join(COLUMNS) + "\n")
        for turn, speaker in enumerate(speakers):
            pieces, start = [np.zeros(PAUSE, np.float32)], PAUSE
            for number in range(turn, len(sentences), len(speakers)):
                text, phonemes = sentences[number]
                wave, durations, trim = speaker.say(teacher, phonemes, voices)
                row = (f"t{number:06d}", f"{speaker.name}.flac", start, len(wave), "en")
                row += (speaker.name, text, phonemes, " ".join(map(str, durations)), trim)
                row += (speaker.formants,)
                stream.write("\t".join(map(str, row)) + "\n")
                pieces += [wave, np.zeros(PAUSE, np.float32)]
                start += len(wave) + PAUSE
            soundfile.write(out / f"{speaker.name}.flac", np.concatenate(pieces), SAMPLE_RATE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="Kokoro-82M, ONNX")
    parser.add_argument("--voices", type=Path, required=True, help="folder of its .bin files")
    parser.add_argument("--symbols", type=Path, required=True, help="JSON: phoneme mark to number")
    parser.add_argument("--sentences", type=Path, required=True, help="JSON: [text, phonemes], …")
    parser.add_argument("--own", nargs="*", default=[], help="voices that speak unmixed")
    parser.add_argument("--mixtures", type=int, default=480)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    voices = {
        file.stem: np.fromfile(file, np.float32).reshape(-1, STYLE)
        for file in sorted(given.voices.glob("*.bin"))
    }
    speakers = [Speaker(name, {name: 1.0}) for name in given.own]
    speakers += mixtures(list(voices), given.mixtures, random.Random(given.seed))
    teacher = Teacher(given.model, json.loads(given.symbols.read_text("utf-8")))
    sentences = [(text, sounds) for text, sounds in json.loads(given.sentences.read_text("utf-8"))]
    speak(teacher, sentences, speakers, voices, given.out)


if __name__ == "__main__":
    main()
