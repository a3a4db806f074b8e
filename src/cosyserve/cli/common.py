"""What several verbs share: the console, common options, loading a model.

Knows no verb.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from cosyserve.settings import Settings

if TYPE_CHECKING:
    from cosyserve.engine.tts import TTS
    from cosyserve.voices.store import VoiceStore

note = Console(stderr=True, highlight=False)

ModelOption = Annotated[
    str | None,
    typer.Option("--model", "-m", help="Model folder, 'nano' or 'test'. [COSYSERVE_MODEL]"),
]
DeviceOption = Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:N.")]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--voice-store", help="Folder or redis://… that keeps voices. [COSYSERVE_VOICE_STORE]"
    ),
]
DtypeOption = Annotated[str | None, typer.Option(help="auto, float32, bfloat16, float16, int8.")]


def load_tts(model: str | None, device: str | None, dtype: str | None) -> TTS:
    settings = Settings.read()
    import torch

    from cosyserve.engine.tts import load

    if settings.threads:
        torch.set_num_threads(settings.threads)
    tts = load(
        model or settings.model, device=device or settings.device, dtype=dtype or settings.dtype
    )
    if not tts.model.config.speech:
        note.print("[yellow]test model: not speech[/yellow]")
    return tts


def stored_voices(place: str | None) -> VoiceStore:
    from cosyserve.voices.store import open_store

    settings = Settings.read()
    return open_store(place or settings.voices, settings.voice_cache_bytes)
