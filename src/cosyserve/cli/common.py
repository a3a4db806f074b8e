"""What several commands share: the console, a loaded model, the stored voices, parts to close."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console

from cosyserve.errors import InputError
from cosyserve.settings import Dtype, Settings

if TYPE_CHECKING:
    from cosyserve.backends.protocols import LMBackend, Token2WavBackend
    from cosyserve.checkpoints.model import Model
    from cosyserve.engine.tts import TTS
    from cosyserve.voices.store import VoiceStore

note = Console(stderr=True, highlight=False, markup=False, emoji=False)

WITHOUT_LM = ("flow", "vocoder", "speech_tokenizer", "speaker_encoder")  # parts of a model


B = TypeVar("B", bound="LMBackend | Token2WavBackend")


def load_tts(
    model: str | None, device: str | None, dtype: Dtype | None = None, lm: str | None = None
) -> TTS:
    """The model that the options or the environment name, in this process."""
    from cosyserve.engine.tts import TTS

    return TTS(load_parts(Settings.read(model=model, device=device, dtype=dtype, lm=lm)))


def load_parts(settings: Settings, only: Collection[str] | None = None) -> Model:
    """The first model of the settings, or the weights of `only` some of its parts."""
    if len(settings.models) > 1 and "model" in settings.options:
        raise InputError(
            f"--model {settings.model}: give one model; several are for `cosyserve serve`"
        )
    import torch

    from cosyserve.checkpoints.load import load_model
    from cosyserve.models.kernels import use_kernels

    if settings.threads:
        torch.set_num_threads(settings.threads)
    model = load_model(
        settings.models[0],
        device=settings.device,
        dtype=settings.dtype,
        only=only,
        lm_file=settings.lm,
    )
    use_kernels(settings.kernels, model.devices)
    if not model.config.speech:
        note.print("test model: not speech", style="yellow")
    return model


def stored_voices(voice_store: str | None) -> VoiceStore:
    """The voices that are kept where the option or the environment says."""
    from cosyserve.voices.store import open_store

    settings = Settings.read(voice_store=voice_store)
    return open_store(settings.voices, settings.voice_cache_bytes)


@asynccontextmanager
async def closing(part: B) -> AsyncIterator[B]:
    """The part, closed behind."""
    try:
        yield part
    finally:
        await part.close()
