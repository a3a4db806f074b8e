"""What several commands share: the console, a loaded model, the stored voices, parts to close."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

from rich.console import Console

from cosyserve.settings import Dtype, Settings

if TYPE_CHECKING:
    from cosyserve.engine.tts import TTS
    from cosyserve.voices.store import VoiceStore

note = Console(stderr=True, highlight=False)


class Closable(Protocol):
    """A speech LM or a token2wav alone."""

    async def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


def load_tts(model: str | None, device: str | None, dtype: Dtype | None = None) -> TTS:
    """The model that the options or the environment name, in this process."""
    settings = Settings.read(model=model, device=device, dtype=dtype)
    import torch

    from cosyserve.engine.tts import load

    if settings.threads:
        torch.set_num_threads(settings.threads)
    tts = load(settings.model, device=settings.device, dtype=settings.dtype)
    if not tts.model.config.speech:
        note.print("[yellow]test model: not speech[/yellow]")
    return tts


def stored_voices(voice_store: str | None) -> VoiceStore:
    """The voices that are kept where the option or the environment says."""
    from cosyserve.voices.store import open_store

    settings = Settings.read(voice_store=voice_store)
    return open_store(settings.voices, settings.voice_cache_bytes)


@asynccontextmanager
async def closing(part: C) -> AsyncIterator[C]:
    """The part, closed behind."""
    try:
        yield part
    finally:
        await part.close()
