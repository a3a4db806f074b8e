"""Models to a folder of ours or of other runtimes: fetch from a hub, read, join, cast, write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from pathlib import Path

import torch

from cosyserve.checkpoints import native, published
from cosyserve.checkpoints.hub.hub import fetch_model, looks_like_hub_name
from cosyserve.checkpoints.model import assemble
from cosyserve.checkpoints.parts import Parts
from cosyserve.checkpoints.published import lm_forms
from cosyserve.choices import LM_FILE
from cosyserve.errors import CheckpointError

DTYPES = ("float32", "bfloat16", "float16")
FORMS = ("native", *lm_forms.FORMS)


def prepare(
    sources: Sequence[str],
    out: Path,
    dtype: str | None,
    *,
    form: str = "native",
    lm_file: str = LM_FILE,
    progress: bool,
    with_voices: Callable[[Parts], Parts] = lambda parts: parts,
) -> None:
    """Writes `out`, or nothing. Every part is built once before, so that what is written loads.

    `with_voices` gives the parts the voices that are to be written with them.
    """
    if form not in FORMS:
        raise CheckpointError(f"form must be one of {', '.join(FORMS)}, got {form!r}")
    if dtype is not None and dtype not in DTYPES:
        raise CheckpointError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    if out.exists():
        raise CheckpointError(f"{out} exists already: remove it or choose another --out")
    folders = [_folder(source, lm_file, progress) for source in sources]
    read = partial(published.read, lm_file=lm_file)
    parts = with_voices(reduce(Parts.joined, map(read, folders)))
    if dtype is not None:
        parts = parts.cast(getattr(torch, dtype))
    origin = ", ".join(sources)
    assemble(parts, origin=origin)
    if form == "native":
        native.write(parts, out)
    else:
        lm_forms.write_lm(parts, form, out, origin)


def _folder(source: str, lm_file: str, progress: bool) -> Path:
    folder = Path(source)
    if folder.is_dir():
        return folder
    if looks_like_hub_name(source):
        return fetch_model(source, lm_file=lm_file, progress=progress)
    raise CheckpointError(
        f"{source}: neither a folder nor a Hub name (owner/name, or ms:owner/name for ModelScope)"
    )
