"""`cosyserve prepare` and `cosyserve doctor`: model folders and this machine."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from cosyserve.cli.common import note, stored_voices
from cosyserve.cli.options import ModelOption, StoreOption
from cosyserve.settings import Dtype, Settings


class StoredDtype(StrEnum):
    """A precision that a folder can be written in."""

    FLOAT32 = Dtype.FLOAT32.value
    BFLOAT16 = Dtype.BFLOAT16.value
    FLOAT16 = Dtype.FLOAT16.value


def prepare(
    source: Annotated[
        list[str],
        typer.Argument(
            help="Published models: folders, Hub names, or ModelScope names with 'ms:'."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The folder to write; it must not exist.")],
    dtype: Annotated[
        StoredDtype | None,
        typer.Option(help="The precision of LM and flow in it; by default as published."),
    ] = None,
    default_voice: Annotated[
        str, typer.Option(help="The voice that is its default: one of its own, or a stored one.")
    ] = "",
    voice_store: StoreOption = None,
) -> None:
    """Convert published models to a folder that loads in seconds.

    Several sources are joined: a speech LM and a token2wav make one model. The speakers of a
    spk2info.pt become its voices.
    """
    import tempfile

    from cosyserve.checkpoints import prepare as preparing
    from cosyserve.checkpoints.parts import Parts
    from cosyserve.voices.prepared import with_voice_files

    with tempfile.TemporaryDirectory(prefix="cosyserve-voices-") as folder:

        def with_voices(parts: Parts) -> Parts:
            return with_voice_files(parts, Path(folder), stored_voices(voice_store), default_voice)

        preparing.prepare(source, out, dtype, progress=note.is_terminal, with_voices=with_voices)
    note.print(f"written: {out}")


def doctor(model: ModelOption = None) -> None:
    """Examine this machine and a model folder: what they have, what is missing, what to do."""
    from cosyserve import doctor as doctors

    findings = doctors.examine(Settings.read(model=model).model)
    table = Table(show_header=False, box=None)
    for finding in findings:
        mark = {True: "[green]ok[/green]", False: "[red]missing[/red]", None: ""}[finding.good]
        table.add_row(mark, finding.name, finding.detail)
    Console().print(table)
    for finding in findings:
        if finding.advice:
            Console().print(f"→ {finding.advice}", soft_wrap=True)
    if any(finding.good is False for finding in findings):
        raise typer.Exit(1)
