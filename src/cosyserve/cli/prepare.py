"""`cosyserve prepare`: model folders."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cosyserve.cli.common import note, stored_voices
from cosyserve.cli.options import LMOption, StoreOption
from cosyserve.settings import Dtype, Settings


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
    lm: LMOption = None,
    default_voice: Annotated[
        str, typer.Option(help="The voice that is its default: one of its own, or a stored one.")
    ] = "",
    voice_store: StoreOption = None,
) -> None:
    """Convert published models to a folder that loads in seconds, or the LM for another runtime.

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

        progress = note.is_terminal
        preparing.prepare(
            source,
            out,
            dtype,
            form=form,
            lm_file=Settings.read(lm=lm).lm,
            progress=progress,
            with_voices=with_voices,
        )
    note.print(f"written: {out}")
