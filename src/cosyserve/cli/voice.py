"""`cosyserve voice`: stored voices.

Knows no file format.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cosyserve.cli.common import (
    DeviceOption,
    ModelOption,
    StoreOption,
    load_tts,
    note,
    stored_voices,
)
from cosyserve.contracts import Recording

voices = typer.Typer(no_args_is_help=True, help="Stored voices.")


@voices.command("add")
def voice_add(
    name: str,
    recording: Annotated[Path, typer.Argument(help="0.5 to 30 s of one speaker.")],
    text: Annotated[str, typer.Option(help="What is said in it.")] = "",
    consent: Annotated[str, typer.Option(help="Who agreed to this use of their voice.")] = "",
    language: str = "",
    model: ModelOption = None,
    voice_store: StoreOption = None,
    device: DeviceOption = None,
) -> None:
    """Learn a voice from a recording and keep it."""
    from cosyserve.audio import decode
    from cosyserve.voices.enroll import enroll
    from cosyserve.voices.store import check_name

    check_name(name)
    store = stored_voices(voice_store)
    audio = decode(recording)
    tts = load_tts(model, device, None)
    heard = Recording(audio.samples, audio.rate, text, name, language, consent)
    voice = enroll(tts.model, heard)
    note.print(f"written: {store.put(name, voice)}")


@voices.command("list")
def voice_list(voice_store: StoreOption = None) -> None:
    """Names of the stored voices."""
    for name in stored_voices(voice_store).names():
        print(name)


@voices.command("show")
def voice_show(name: str, voice_store: StoreOption = None) -> None:
    """What is known of a voice."""
    voice = stored_voices(voice_store).get(name)
    rows = {
        "name": voice.name or name,
        "prompt text": voice.prompt_text or "(none)",
        "prompt": f"{len(voice.speech_tokens) / 25:.2f} s, {len(voice.speech_tokens)} tokens",
        "embedding": str(len(voice.embedding)),
        "model": f"{voice.family} {voice.fingerprint}".strip(),
        "language": voice.language or "(not said)",
        "consent": voice.consent or "(not said)",
        "created": voice.created or "(not said)",
        "hash": voice.content_hash,
    }
    for key, value in rows.items():
        print(f"{key:12} {value}")


@voices.command("remove")
def voice_remove(name: str, voice_store: StoreOption = None) -> None:
    """Forget a voice."""
    stored_voices(voice_store).remove(name)


@voices.command("import")
def voice_import(
    file: Annotated[Path, typer.Argument(help="A spk2info.pt of the original.")],
    model: ModelOption = None,
    voice_store: StoreOption = None,
) -> None:
    """Keep all speakers of a spk2info.pt."""
    from cosyserve.voices.spk2info import import_spk2info
    from cosyserve.voices.store import check_name

    tokenizer = load_tts(model, "cpu", None).model.text_tokenizer if model else None
    store = stored_voices(voice_store)
    speakers = import_spk2info(file, tokenizer)
    for name in speakers:
        check_name(name)
    for name, voice in speakers.items():
        note.print(f"written: {store.put(name, voice)}")
