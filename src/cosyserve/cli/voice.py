"""`cosyserve voice`: stored voices."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cosyserve.cli.common import load_tts, note, stored_voices
from cosyserve.cli.options import DeviceOption, ModelOption, StoreOption
from cosyserve.contracts import TOKENS_PER_SECOND, Recording
from cosyserve.errors import VoiceError

voices = typer.Typer(no_args_is_help=True, help="Keep, list, show and remove voices.")

NameArgument = Annotated[str, typer.Argument(help="The name of the voice.")]


@voices.command("add")
def voice_add(
    name: NameArgument,
    recording: Annotated[
        Path, typer.Argument(help="A file with 0.5 to 30 seconds of one speaker.")
    ],
    text: Annotated[str, typer.Option(help="The words of the recording.")] = "",
    consent: Annotated[
        str, typer.Option(help="A note of who agreed to this use of their voice, and how.")
    ] = "",
    language: Annotated[
        str, typer.Option(help="The language of the recording as a code, e.g. 'en' or 'zh'.")
    ] = "",
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
    tts = load_tts(model, device)
    voice = enroll(
        tts.model,
        Recording(
            samples=audio.samples,
            rate=audio.rate,
            text=text,
            name=name,
            language=language,
            consent=consent,
        ),
    )
    note.print(f"written: {store.put(name, voice)}")


@voices.command("list")
def voice_list(voice_store: StoreOption = None) -> None:
    """List the names of the stored voices."""
    for name in stored_voices(voice_store).names():
        print(name)


@voices.command("show")
def voice_show(name: NameArgument, voice_store: StoreOption = None) -> None:
    """Show what is known of a voice."""
    voice = stored_voices(voice_store).get(name)
    tokens = len(voice.speech_tokens)
    rows = {
        "name": voice.name or name,
        "prompt text": voice.prompt_text or "(none)",
        "prompt": f"{tokens / TOKENS_PER_SECOND:.2f} s, {tokens} tokens",
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
def voice_remove(name: NameArgument, voice_store: StoreOption = None) -> None:
    """Remove a voice."""
    stored_voices(voice_store).remove(name)


@voices.command("import")
def voice_import(
    file: Annotated[Path, typer.Argument(help="A spk2info.pt of the original CosyVoice.")],
    model: ModelOption = None,
    voice_store: StoreOption = None,
) -> None:
    """Keep all speakers of a spk2info.pt, made by --model: CosyVoice2 unless it says otherwise."""
    from cosyserve.voices.spk2info import import_spk2info
    from cosyserve.voices.store import check_name

    store = stored_voices(voice_store)
    if model:
        made_by = load_tts(model, "cpu").model
        speakers = import_spk2info(file, made_by.text_tokenizer, made_by.config.family)
    else:
        speakers = import_spk2info(file, None)
    if not speakers:
        raise VoiceError(f"{file}: holds no speaker")
    for name in speakers:
        check_name(name)
    for name, voice in speakers.items():
        note.print(f"written: {store.put(name, voice)}")
