"""The parts of the model that one Triton model needs, with its process set up for them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import torch

from cosyserve.checkpoints import native
from cosyserve.checkpoints.load import load_model
from cosyserve.checkpoints.model import Model
from cosyserve.checkpoints.parts import build
from cosyserve.choices import KernelChoice
from cosyserve.models.kernels import use_kernels
from cosyserve.models.vocoder.hift import HiFT

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of the C library's mallopt


def load_parts(settings: Mapping[str, str], *parts: str) -> Model:
    """The model with the weights of these parts alone, by a Triton model's parameters."""
    if threads := int(settings["threads"]):
        torch.set_num_threads(threads)
    model = load_model(
        settings["model_dir"], device=settings["device"], dtype=settings["dtype"], only=parts
    )
    use_kernels(cast(KernelChoice, settings["kernels"]), model.devices)
    if model.device.type == "cpu":
        _keep_memory()
    return model


def load_vocoder(settings: Mapping[str, str]) -> HiFT:
    """The vocoder alone."""
    model = load_parts(settings)
    parts = native.read(Path(settings["model_dir"]), only=("vocoder",))
    built = build(HiFT, parts.config.vocoder, parts.states["vocoder"], "vocoder")
    return built.to(model.device, torch.float32)


def _keep_memory() -> None:
    """Keeps the memory that a chunk has freed for the next one. To have it anew costs thousands of
    page faults, 3 of 40 ms."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # other C libraries have no such thing
        library.mallopt(M_TRIM_THRESHOLD, 1 << 30)
        library.mallopt(M_MMAP_THRESHOLD, 32 << 20)
