"""The parts of the model that one Triton model needs, with its process set up for them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import torch

from cosyserve.backends.estimators.open import use_backend
from cosyserve.checkpoints import native
from cosyserve.checkpoints.load import load_model
from cosyserve.checkpoints.model import Model
from cosyserve.checkpoints.parts import build
from cosyserve.choices import KernelChoice
from cosyserve.malloc import keep_blocks
from cosyserve.models.kernels import use_kernels
from cosyserve.models.vocoder.hift import HiFT

# Kept for the next chunk: to have it anew costs thousands of page faults, 3 of 40 ms.
KEPT_BLOCK = 32 << 20


def load_parts(settings: Mapping[str, str], *parts: str) -> Model:
    """The model with the weights of these parts alone, by a Triton model's parameters."""
    if threads := int(settings["threads"]):
        torch.set_num_threads(threads)
    model = load_model(
        settings["model_dir"], device=settings["device"], dtype=settings["dtype"], only=parts
    )
    use_kernels(cast(KernelChoice, settings["kernels"]), model.devices)
    if model.device.type == "cpu":
        keep_blocks(KEPT_BLOCK)
    return model


def with_flow_backend(model: Model, settings: Mapping[str, str]) -> Model:
    """The model with its flow and its speaker encoder in the runtime that the settings name."""
    backend, engines = settings["flow_backend"], Path(settings["flow_engines"])
    return use_backend(model, settings["model_dir"], backend, engines, settings["dtype"])


def load_vocoder(settings: Mapping[str, str]) -> HiFT:
    """The vocoder alone."""
    model = load_parts(settings)
    parts = native.read(Path(settings["model_dir"]), only=("vocoder",))
    built = build(HiFT, parts.config.vocoder, parts.states["vocoder"], "vocoder")
    return built.to(model.device, torch.float32)
