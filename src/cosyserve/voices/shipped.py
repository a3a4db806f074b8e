"""The voices that a model brings along, and the model as an engine describes it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from cosyserve.checkpoints.model import Model
from cosyserve.checkpoints.parts import SPEAKERS, Parts
from cosyserve.contracts import ModelInfo, Voice, VoiceFormat
from cosyserve.errors import VoiceError
from cosyserve.models.config import ModelConfig
from cosyserve.text import TextTokenizer
from cosyserve.voices.file import load_voice
from cosyserve.voices.fits import check_fits
from cosyserve.voices.library import NO_VOICE
from cosyserve.voices.spk2info import import_spk2info
from cosyserve.voices.store import DEFAULT, check_name

FIRST_SPEAKER = "001"  # with which the original's Triton models speak, unless a recording is sent

log = logging.getLogger(__name__)


def describe(model: Model) -> ModelInfo:
    """The model as an engine describes it."""
    config = model.config
    return ModelInfo(
        name=config.name,
        voice_format=config.voice_format,
        speech=config.speech,
        voices=_with_default(_read(model.voices, model.text_tokenizer, config), config),
        takes_pieces=config.takes_pieces,
        sampling=config.sampling,
    )


def default_voice(model: Model) -> Voice:
    """The model's own voice `default`."""
    voice = describe(model).voices.get(DEFAULT)
    if voice is None:
        raise VoiceError(NO_VOICE)
    return voice


def shipped_voices(parts: Parts) -> dict[str, Voice]:
    """The voices of a model in parts, by name; `default` is among them unless there is none."""
    return _with_default(_read(parts.voices, parts.tokenizer, parts.config), parts.config)


def named_voices(parts: Parts) -> dict[str, Voice]:
    """The voices that a model in parts has under names of their own."""
    return _read(parts.voices, parts.tokenizer, parts.config)


def _read(
    files: Iterable[Path], tokenizer: TextTokenizer | None, config: ModelConfig
) -> dict[str, Voice]:
    voices: dict[str, Voice] = {}
    for file in files:
        if file.name != SPEAKERS:
            voices[file.stem] = load_voice(file)
            continue
        for name, voice in import_spk2info(file, tokenizer, config.family).items():
            if name in voices:
                raise VoiceError(f"{file}: the folder voices/ has a '{name}', too: remove one")
            _check(file, name, voice, config.voice_format)
            voices[name] = voice
    return voices


def _check(file: Path, name: str, voice: Voice, wanted: VoiceFormat) -> None:
    try:
        check_fits(voice, wanted)
        if name != DEFAULT:
            check_name(name)
    except VoiceError as error:
        raise VoiceError(f"{file}: {error}") from error


def _with_default(voices: Mapping[str, Voice], config: ModelConfig) -> dict[str, Voice]:
    """The voices and which of them is `default`; the test model, which is no speech, has a preset
    that is nobody's."""
    if DEFAULT in voices:
        return dict(voices)
    if voices:
        name = FIRST_SPEAKER if FIRST_SPEAKER in voices else min(voices)
        log.info("the voice 'default' is '%s': --default-voice chooses another", name)
        return {**voices, DEFAULT: voices[name]}
    return {DEFAULT: _preset(config)} if not config.speech else {}


def _preset(config: ModelConfig) -> Voice:
    assert config.flow
    return Voice(
        prompt_text="",
        speech_tokens=np.zeros(0, np.int32),
        mel=np.zeros((0, config.flow.mel), np.float32),
        embedding=np.full(config.flow.speaker, config.flow.speaker**-0.5, np.float32),
        family=config.family,
    )
