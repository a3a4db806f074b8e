"""The voices that a model brings along, and the model as an engine describes it."""

from __future__ import annotations

import logging

import numpy as np

from cosyserve.checkpoints.model import Model
from cosyserve.contracts import ModelInfo, Voice
from cosyserve.voices.file import load_voice

log = logging.getLogger(__name__)


def describe(model: Model) -> ModelInfo:
    """The model as an engine describes it; its voice `default` is always there."""
    config = model.config
    voices = {file.stem: load_voice(file) for file in model.voices}
    if "default" not in voices:
        voices["default"] = default_voice(model)
    return ModelInfo(
        name=config.name,
        family=config.family,
        fingerprint=config.fingerprint,
        speech=config.speech,
        voices=voices,
        takes_pieces=config.takes_pieces,
    )


def default_voice(model: Model) -> Voice:
    """The model's own voice named `default`, or its first one, or a neutral preset."""
    shipped = {file.stem: file for file in model.voices}
    if shipped:
        return load_voice(shipped.get("default", model.voices[0]))
    if model.config.speech:
        log.warning("the model brings no voice of its own: this one is nobody's, give a better")
    flow = model.config.flow or model.need_token2wav()[0].config
    return Voice(
        prompt_text="",
        speech_tokens=np.zeros(0, np.int32),
        mel=np.zeros((0, flow.mel), np.float32),
        embedding=np.full(flow.speaker, flow.speaker**-0.5, np.float32),
    )
