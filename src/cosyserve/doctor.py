"""What `cosyserve doctor` finds: this machine, the model folder, what is missing, what to do."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from cosyserve.audio import AudioFormat
from cosyserve.errors import CosyError

if TYPE_CHECKING:
    from cosyserve.checkpoints.parts import Parts

PACKAGES = ("torch", "numpy", "onnxruntime", "tokenizers", "safetensors", "av", "soxr", "wetext")
ENCODERS = {AudioFormat.MP3: "libmp3lame", AudioFormat.OPUS: "libopus", AudioFormat.AAC: "aac"}


@dataclass(frozen=True)
class Finding:
    """A part of the machine or of the model folder, and what to do where it is not good."""

    name: str
    detail: str
    good: bool | None = None  # None: just a fact
    advice: str = ""


def examine(model: str) -> list[Finding]:
    """The findings of this machine and of a model folder."""
    return [*_machine(), *_packages(), *_codecs(), *_model(model)]


def _machine() -> list[Finding]:
    import torch

    findings = [
        Finding("python", platform.python_version()),
        Finding("cpu", f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads"),
    ]
    for index in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(index)
        free, total = (number / 2**30 for number in torch.cuda.mem_get_info(index))
        findings.append(
            Finding(f"cuda:{index}", f"{card.name}, {free:.1f} of {total:.1f} GiB free")
        )
    if not torch.cuda.device_count():
        build = torch.version.cuda or "CPU-only"
        findings.append(
            Finding("gpu", f"none that torch ({build} build) can use: running on the CPU")
        )
    return findings


def _packages() -> list[Finding]:
    findings = []
    for name in PACKAGES:
        try:
            findings.append(Finding(name, version(name), good=True))
        except PackageNotFoundError:
            findings.append(Finding(name, "not installed", False, f"pip install {name}"))
    return findings


def _codecs() -> list[Finding]:
    from av.codec import codecs_available

    return [
        Finding(
            str(kind),
            codec,
            codec in codecs_available,
            "" if codec in codecs_available else f"PyAV lacks {codec}: pip install --upgrade av",
        )
        for kind, codec in ENCODERS.items()
    ]


def _model(name: str) -> list[Finding]:
    from cosyserve.checkpoints import published, testmodel
    from cosyserve.checkpoints.load import model_folder
    from cosyserve.checkpoints.parts import MODULES

    if name == testmodel.NAME:
        advice = (
            "`test` has random weights and does not speak: get FunAudioLLM/CosyVoice2-0.5B and "
            "pass it with --model, or run `cosyserve prepare FunAudioLLM/CosyVoice2-0.5B --out DIR`"
        )
        return [Finding("model", "test (random weights, not speech)", None, advice)]
    try:
        parts = published.read(model_folder(name))
    except CosyError as error:
        return [Finding("model", name, False, str(error))]
    findings = [Finding("model", f"{name}: {parts.config.name}", True)]
    for part in MODULES:
        kind = "torch" if part in parts.states else "onnxruntime" if part in parts.onnx else ""
        size = sum(t.numel() * t.element_size() for t in parts.states.get(part, {}).values())
        detail = f"{kind}, {size / 2**20:.0f} MiB" if size else kind or "not in the folder"
        findings.append(Finding(part, detail, bool(kind), "" if kind else _ADVICE[part]))
    return [*findings, _voices(parts)]


def _voices(parts: Parts) -> Finding:
    from cosyserve.voices.library import NO_VOICE
    from cosyserve.voices.shipped import named_voices

    try:
        names = ", ".join(named_voices(parts))
    except CosyError as error:
        return Finding("voices", "can't be read", False, str(error))
    return Finding("voices", names or "none shipped", None, "" if names else NO_VOICE)


_JOIN = "join another folder's with `cosyserve prepare DIR OTHER_DIR --out NATIVE`"
_ADVICE = {
    "lm": f"no speech LM, text can't be spoken: {_JOIN}",
    "flow": f"no flow, tokens can't become sound: {_JOIN}",
    "vocoder": f"no vocoder, tokens can't become sound: {_JOIN}",
    "speech_tokenizer": "no voice can be learnt from audio: add speech_tokenizer_v2.onnx",
    "speaker_encoder": "no voice can be learnt from audio: add campplus.onnx",
}
