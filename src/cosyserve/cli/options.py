"""Options that stand for settings, with their help, variable and choices; options with lists."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from cosyserve.errors import InputError
from cosyserve.settings import Dtype, Settings, variable


def setting(name: str, *flags: str, help: str = "", more: str = "") -> Any:
    """A typer option with the setting's description, or another `help`, and `more` behind it."""
    text = help or " ".join((Settings.model_fields[name].description or "").split())
    text = " ".join(filter(None, (text.replace("`", ""), more, f"[env var: {variable(name)}]")))
    return typer.Option(*flags, help=escape(text))


ModelOption = Annotated[str | None, setting("model", "--model", "-m")]
DeviceOption = Annotated[str | None, setting("device")]
DtypeOption = Annotated[Dtype | None, setting("dtype")]
LMOption = Annotated[str | None, setting("lm")]
DefaultVoiceOption = Annotated[str | None, setting("default_voice")]
LexiconOption = Annotated[str | None, setting("lexicon")]
StoreOption = Annotated[str | None, setting("voice_store", "--voice-store")]


def check_folder(option: str, file: Path | None, made: Path | None = None) -> None:
    """Refuses a file that can't be written in the end: it is a folder, or its folder is not there,
    and is none that will be `made` before."""
    if file is not None and os.path.isdir(file):
        raise InputError(f"{option} {file}: this is a folder, name a file")
    if file is None or (made is not None and file.parent in (made, *made.parents)):
        return
    if not os.path.isdir(file.parent):
        raise InputError(f"{option} {file}: there is no folder {file.parent}")


def words(values: Sequence[str] | None) -> tuple[str, ...]:
    """The words of an option that is given several times, or once with commas."""
    return tuple(
        word.strip() for value in values or () for word in value.split(",") if word.strip()
    )


def numbers(option: str, values: Sequence[str] | None) -> tuple[int, ...]:
    """The whole numbers of such an option, which are of GPUs, requests and the like."""
    found = words(values)
    for word in found:
        if not re.fullmatch("0*[1-9][0-9]{0,3}", word):
            raise InputError(
                f"{option} wants whole numbers from 1 to 9999, e.g. 1,2,3; got {word!r:.40}"
            )
    return tuple(map(int, found))
