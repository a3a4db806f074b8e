"""`cosyserve watermark`: whether a recording has this server's mark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cosyserve.cli.options import setting
from cosyserve.errors import InputError
from cosyserve.settings import Settings, variable

MAX_SECONDS = 3600.0


def watermark(
    file: Annotated[Path, typer.Argument(help="The recording: wav, flac, mp3, ogg, opus or m4a.")],
    watermark_key: Annotated[
        str | None, setting("watermark_key", help="The key that speech was marked with.")
    ] = None,
) -> None:
    """Look for the watermark of a key in a recording: exit code 0 if it is there, 1 if not."""
    from cosyserve.audio import decode
    from cosyserve.audio.watermark import Watermark
    from cosyserve.audio.watermark_detector import detect

    key = Settings.read(watermark_key=watermark_key).watermark_key.get_secret_value()
    if not key:
        raise InputError(f"there is no key to look for: set {variable('watermark_key')}")
    recording = decode(file, max_seconds=MAX_SECONDS)
    found = detect(Watermark.of(key), recording.samples, recording.rate)
    verdict = "marked" if found.marked else "not marked"
    print(
        f"{verdict}: score {found.score:.1f} in {recording.seconds:.1f} s; of recordings without "
        f"the mark, a share of {found.false_positives:.1g} at most scores as much"
    )
    raise typer.Exit(0 if found.marked else 1)
