"""The parts of the model that one Triton model needs, with its threads set. Knows no tensor."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from cosyserve.engine import tts
from cosyserve.models.model import Model


def load(settings: Mapping[str, str], *parts: str) -> Model:
    if threads := int(settings["threads"]):
        torch.set_num_threads(threads)
    return tts.load(
        settings["model_dir"], device=settings["device"], dtype=settings["dtype"], only=parts
    ).model
