"""Options that stand for settings: help, variable and choices are those of the setting."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape

from cosyserve.settings import Dtype, Settings, variable


def setting(name: str, *flags: str, help: str = "", more: str = "") -> Any:
    """A typer option with the setting's description, or another `help`, and `more` behind it."""
    text = help or " ".join((Settings.model_fields[name].description or "").split())
    text = " ".join(filter(None, (text.replace("`", ""), more, f"[env var: {variable(name)}]")))
    return typer.Option(*flags, help=escape(text))


ModelOption = Annotated[str | None, setting("model", "--model", "-m")]
DeviceOption = Annotated[str | None, setting("device")]
DtypeOption = Annotated[Dtype | None, setting("dtype")]
DefaultVoiceOption = Annotated[str | None, setting("default_voice")]
StoreOption = Annotated[str | None, setting("voice_store", "--voice-store")]
