"""A Triton model repository as files, written all or nothing.

A model's `model.py` is one import: all code is in the installed package.
"""

from __future__ import annotations

from pathlib import Path

from google.protobuf import text_format

from cosyserve.checkpoints import native, testmodel
from cosyserve.checkpoints.folder import written_whole
from cosyserve.checkpoints.load import model_folder
from cosyserve.deploy.triton_models import LLM_KEY_FILE, code, models
from cosyserve.deploy.triton_settings import TritonSettings
from cosyserve.errors import CheckpointError, InputError
from cosyserve.models.config import DiTConfig
from cosyserve.settings import Settings

WEIGHTS = Path("audio_tokenizer", "weights")  # of the test model; Triton reads only numbers there


def render(settings: TritonSettings, out: Path) -> list[str]:
    """Writes the repository of a model folder, or of `test` -> the names of its models."""
    with written_whole(out, InputError) as folder:
        return _write(settings, folder, out)


def _write(settings: TritonSettings, folder: Path, out: Path) -> list[str]:
    voices = settings.voices or Settings.read().voices
    if settings.model_dir == testmodel.NAME:
        parts = testmodel.random_parts()
        native.write(parts, folder / WEIGHTS)
        model_dir = out.absolute() / WEIGHTS
    else:
        source = model_folder(settings.model_dir)
        if not native.is_native(source):
            raise CheckpointError(
                f"{source}: not a folder of `cosyserve prepare`; make one: "
                f"`cosyserve prepare {source} --out DIR`"
            )
        parts = native.read(source, only=())
        model_dir = source.absolute()
    config = parts.config
    dit = config.flow is not None and isinstance(config.flow.estimator, DiTConfig)
    settings = settings.model_copy(update={"model_dir": str(model_dir), "voices": voices})
    configs = models(settings, dit)
    parameters = {
        "model": config.name,
        "family": config.family,
        "fingerprint": config.fingerprint,
        "speech": str(config.speech).lower(),
        "shipped_voices": ",".join(file.stem for file in parts.voices),
    }
    for name, model in configs.items():
        if name.startswith("cosyvoice2"):  # `TritonEngine` reads them
            for key, value in parameters.items():
                model.parameters[key].string_value = value
        (folder / name / "1").mkdir(parents=True, exist_ok=True)
        if name.startswith("cosyvoice2") and settings.llm_api_key:
            # Triton shows a model's configuration to whoever asks for it.
            key_file = folder / name / "1" / LLM_KEY_FILE
            key_file.touch(mode=0o600)
            key_file.write_text(settings.llm_api_key)
        (folder / name / "config.pbtxt").write_text(text_format.MessageToString(model))
        if model.backend == "python":
            (folder / name / "1" / "model.py").write_text(code(name))
    return sorted(configs)
