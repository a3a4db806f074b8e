"""`cosyserve prepare` and `cosyserve doctor`: model folders and this machine.

Knows no model.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from cosyserve.cli.common import ModelOption, note
from cosyserve.settings import Settings


def prepare(
    source: Annotated[list[str], typer.Argument(help="Folders or Hub names; 'ms:' = ModelScope.")],
    out: Annotated[Path, typer.Option(help="The folder to write; must not exist.")],
    dtype: Annotated[
        str | None, typer.Option(help="float32, bfloat16 or float16. Default: as published.")
    ] = None,
) -> None:
    """Convert published models to a folder that loads in seconds.

    Several sources are joined: a speech LM and a token2wav make one model.
    """
    from cosyserve.checkpoints import prepare as preparing

    preparing.prepare(source, out, dtype, progress=note.is_terminal)
    note.print(f"written: {out}")


def doctor(model: ModelOption = None) -> None:
    """What this machine has, what the model folder has, what is missing, what to do."""
    from cosyserve import doctor as doctors

    findings = doctors.examine(model or Settings.read().model)
    table = Table(show_header=False, box=None)
    for finding in findings:
        mark = {True: "[green]ok[/green]", False: "[red]missing[/red]", None: ""}[finding.good]
        table.add_row(mark, finding.what, finding.detail)
    Console().print(table)
    for finding in findings:
        if finding.advice:
            Console().print(f"→ {finding.advice}", soft_wrap=True)
    if any(finding.good is False for finding in findings):
        raise typer.Exit(1)
