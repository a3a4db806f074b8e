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


class Form(StrEnum):
    """Who reads the folder."""

    NATIVE = "native"
    HF = "hf"
    VLLM = "vllm"


def prepare(
    source: Annotated[
        list[str],
        typer.Argument(help="Models: folders, Hub names, or ModelScope names with 'ms:'."),
    ],
    out: Annotated[Path, typer.Option(help="The folder to write; it must not exist.")],
    dtype: Annotated[
        StoredDtype | None,
        typer.Option(help="The precision of LM and flow in it; by default as published."),
    ] = None,
    form: Annotated[
        Form,
        typer.Option(
            help="Who reads it: cosyserve, or of the speech LM alone those who read Hugging Face "
            "folders (TensorRT-LLM, vLLM, SGLang), or the original's vLLM."
        ),
    ] = Form.NATIVE,
) -> None:
    """Convert published models to a folder that loads in seconds, or the LM for another runtime.

    Several sources are joined: a speech LM and a token2wav make one model.
    """
    from cosyserve.checkpoints import prepare as preparing

    preparing.prepare(source, out, dtype, form=form, progress=note.is_terminal)
    note.print(f"written: {out}")
