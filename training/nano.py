"""Trains all parts in order and writes the model folder: one command, one GPU.

The vocoder and the pronouncer need nobody and train beside the others. First the tokenizer and the
speaker encoder; then, with their codes and embeddings, the LM and the flow, with its encoder first
and then without; then the distilled flow. Every recipe is a process of its own, so that small
models share the GPU. Knows no loss.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import torch

from cosyserve.models.config import ModelConfig
from training import data, distil, export
from training.presets import Arrays
from training.sizes import NANO

# part of the whole time: vocoder all of it, tokenizer and speaker first, then LM and flow
TOKENIZER, SPEAKER, LM, ENCODER, FLOW, DISTIL = 0.24, 0.16, 0.15, 0.25, 0.45, 0.2
ENCODER_STEPS = 12_000  # at most: an encoder that learns for longer knows voices by heart
PRONOUNCER_SECONDS = 90
NOTICE = Path(__file__).parent / "pronunciations.NOTICE"  # of the dictionaries


def start(
    recipe: str, given: argparse.Namespace, share: float, *more: str
) -> subprocess.Popen[bytes]:
    seconds = str(share * given.minutes * 60)
    command = [sys.executable, "-m", f"training.{recipe}", "--data", str(given.work / "arrays")]
    command += ["--out", str(given.work), "--seconds", seconds, "--seed", str(given.seed), *more]
    if torch.cuda.is_available() and recipe in ("flow", "distil", "vocoder"):
        command.append("--compile")
    if given.resume and recipe not in ("flow", "distil"):
        command.append("--resume")
    return subprocess.Popen(command)


def start_pronouncer(given: argparse.Namespace) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "training.pronounce", "--corpus", str(given.corpus)]
    command += ["--out", str(given.work), "--seconds", str(PRONOUNCER_SECONDS)]
    command += ["--dictionary", *map(str, given.dictionary)]
    command += ["--sentences", str(given.sentences)] if given.sentences else []
    return subprocess.Popen(command)


def start_exceptions(given: argparse.Namespace) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "training.exceptions", "--corpus", str(given.corpus)]
    command += ["--pronouncer", str(given.work / "pronouncer.safetensors")]
    command += ["--dictionary", *map(str, given.dictionary), "--notice", str(NOTICE)]
    return subprocess.Popen(command)


def finish(*running: subprocess.Popen[bytes]) -> None:
    for process in running:
        if process.wait():
            raise SystemExit(f"failed: {' '.join(map(str, process.args[2:3]))}")  # type: ignore[index]


def folder(work: Path, out: Path) -> None:
    """Writes the model folder from the checkpoints in `work`."""
    export.write(work, chosen(work), Arrays(work), out)


def chosen(work: Path) -> ModelConfig:
    """The sizes, with few steps and no guidance where the flow was distilled."""
    distilled = work / "flow_distilled.pt"
    if not distilled.exists():
        return NANO
    assert NANO.flow
    distilled.replace(work / "flow.pt")
    return replace(NANO, flow=replace(NANO.flow, steps=distil.STEPS, guidance=0.0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="folder with index.tsv")
    parser.add_argument("--work", type=Path, default=Path("out/nano"), help="arrays, checkpoints")
    parser.add_argument("--out", type=Path, required=True, help="model folder to write")
    parser.add_argument("--dictionary", type=Path, nargs="*", default=[], help="JSON, best first")
    parser.add_argument("--sentences", type=Path, help="text that shows how often words are met")
    parser.add_argument("--minutes", type=float, default=60.0, help="training time in all")
    parser.add_argument("--workers", type=int, default=8, help="processes that read the corpus")
    parser.add_argument(
        "--resume", action="store_true", help="go on from checkpoints in work; encoders stay"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--begin", type=Path, help="model folder to go on from")
    given = parser.parse_args()
    if given.begin:
        export.checkpoints(given.begin, given.work)
        given.resume = True
    if not (given.work / "arrays" / "meta.json").exists():
        data.prepare(given.corpus, given.work / "arrays", given.workers)
    vocoder, pronouncer = start("vocoder", given, 0.97), start_pronouncer(given)
    finish(start("tokenizer", given, TOKENIZER), start("speaker", given, SPEAKER))
    lm = start("lm", given, LM)
    if not given.resume:
        finish(start("flow", given, ENCODER, "--steps", str(ENCODER_STEPS)))
    finish(start("flow", given, FLOW, "--resume"))
    finish(start("distil", given, DISTIL), pronouncer, lm, vocoder)
    if given.dictionary:
        finish(start_exceptions(given))
    folder(given.work, given.out)


if __name__ == "__main__":
    main()
