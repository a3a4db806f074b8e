"""`cosyserve prepare`: model folders."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cosyserve.cli.common import note
from cosyserve.settings import Dtype


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
) -> None:
    """Convert published models to a folder that loads in seconds.

    Several sources are joined: a speech LM and a token2wav make one model.
    """
    from cosyserve.checkpoints import prepare as preparing

    preparing.prepare(source, out, dtype, progress=note.is_terminal)
    note.print(f"written: {out}")
