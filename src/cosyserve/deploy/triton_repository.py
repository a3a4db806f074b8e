"""A Triton model repository as files, written all or nothing. Knows no server.

A model's `model.py` is one import: all code is in the installed package.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from google.protobuf import text_format

from cosyserve.checkpoints import native, testmodel
from cosyserve.checkpoints.load import model_folder
from cosyserve.deploy.triton_models import code, models
from cosyserve.deploy.triton_settings import TritonSettings
from cosyserve.errors import CheckpointError, InputError
from cosyserve.models.config import DiTConfig
from cosyserve.settings import Settings

WEIGHTS = Path("audio_tokenizer", "weights")  # of the test model; Triton reads only numbers there


def render(settings: TritonSettings, out: Path) -> list[str]:
    """Writes the repository of a model folder, or of `test` -> the names of its models."""
    if os.path.lexists(out):
        raise InputError(f"{out} exists already: remove it or choose another --out")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    except OSError as error:
        raise InputError(f"{out}: can't be written: {error}") from error
    try:
        names = _write(settings, partial, out)
        partial.chmod(0o755)
        os.rename(partial, out)
    except OSError as error:
        raise InputError(f"{out}: can't be written: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return names


def _write(settings: TritonSettings, folder: Path, out: Path) -> list[str]:
    settings = replace(settings, voices=settings.voices or Settings().voices)
    if settings.model_dir == testmodel.NAME:
        parts = testmodel.random_parts()
        native.write(parts, folder / WEIGHTS)
        settings = replace(settings, model_dir=str(out.absolute() / WEIGHTS))
    else:
        source = model_folder(settings.model_dir)
        if not native.is_native(source):
            raise CheckpointError(
                f"{source}: not a folder of `cosyserve prepare`; make one: "
                f"`cosyserve prepare {source} --out DIR`"
            )
        parts = native.read(source, only=())
        settings = replace(settings, model_dir=str(source.absolute()))
    config = parts.config
    dit = config.flow is not None and isinstance(config.flow.estimator, DiTConfig)
    found = models(settings, dit)
    about = {
        "model": config.name,
        "family": config.family,
        "fingerprint": config.fingerprint,
        "speech": str(config.speech).lower(),
        "shipped_voices": ",".join(file.stem for file in parts.voices),
    }
    for name, model in found.items():
        if name.startswith("cosyvoice2"):  # whoever speaks through it asks what it is
            for key, value in about.items():
                model.parameters[key].string_value = value
        (folder / name / "1").mkdir(parents=True, exist_ok=True)
        (folder / name / "config.pbtxt").write_text(text_format.MessageToString(model))
        if model.backend == "python":
            (folder / name / "1" / "model.py").write_text(code(name))
    return sorted(found)
