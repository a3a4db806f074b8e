"""`cosyserve doctor`: this machine and a model folder."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from cosyserve.cli.options import ModelOption
from cosyserve.settings import Settings


def doctor(
    model: ModelOption = None,
    speak: Annotated[
        bool, typer.Option("--speak", help="Load the model and measure its first audio, too.")
    ] = False,
) -> None:
    """Examine this machine and a model folder: what they have, what is missing, what to do."""
    from cosyserve.doctor import examine

    findings = examine(Settings.read(model=model), speak=speak)
    table = Table(show_header=False, box=None)
    for finding in findings:
        mark = {True: "[green]ok[/green]", False: "[red]bad[/red]", None: ""}[finding.good]
        table.add_row(mark, finding.name, finding.detail)
    Console().print(table)
    for finding in findings:
        if finding.advice:
            advice = f"→ {finding.name}: {finding.advice}"
            Console().print(advice, soft_wrap=True, markup=False)
    if any(finding.good is False for finding in findings):
        raise typer.Exit(1)
