"""A Triton model repository as files, written all or nothing.

A model's `model.py` is one import: all code is in the installed package.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

from cosyserve.checkpoints import native, testmodel
from cosyserve.checkpoints.folder import written_whole
from cosyserve.checkpoints.load import model_folder
from cosyserve.checkpoints.parts import Parts
from cosyserve.deploy.triton.models import (
    LLM_KEY_FILE,
    SpeechModel,
    code,
    missing_parts,
    models,
)
from cosyserve.deploy.triton.settings import TritonSettings
from cosyserve.errors import CheckpointError, InputError
from cosyserve.models.config import DiTConfig, ModelConfig
from cosyserve.settings import Settings
from cosyserve.triton.options import SAMPLING
from cosyserve.voices.library import VoiceLibrary
from cosyserve.voices.shipped import shipped_voices
from cosyserve.voices.store import DEFAULT, open_store


def render(settings: TritonSettings, out: Path, source: str = "") -> list[str]:
    """Writes the repository of a model folder, or of `test` -> the names of its models.

    `source` is the folder here, where `model_dir`, which the server sees, is another.
    """
    with written_whole(out, InputError) as folder:
        return _write(settings, folder, out, source or settings.model_dir)


def _write(settings: TritonSettings, folder: Path, out: Path, source: str) -> list[str]:
    own = Settings.read()
    parts = _parts(source)
    if source == settings.model_dir:
        model_dir = model_folder(source).absolute()
    else:
        model_dir = Path(settings.model_dir).absolute()
    if source == settings.model_dir == testmodel.NAME:
        # In the folder of a model Triton reads only what has a number for its name.
        owner = "tensorrt_llm" if settings.role == "lm" else "audio_tokenizer"
        native.write(parts, folder / owner / "weights")
        model_dir = out.absolute() / owner / "weights"
    config = parts.config
    speech = _speech_model(config)
    places = {"model_dir": str(model_dir), "voices": settings.voices or own.voices}
    places["flow_engines"] = str(Path(settings.flow_engines or own.engines).absolute())
    if settings.engine_dir:
        places["engine_dir"] = str(Path(settings.engine_dir).absolute())
    settings = settings.model_copy(update=places)
    configs = models(settings, speech)
    _check_parts(config, configs.values(), source)
    parameters = {
        "model": config.name,
        "family": config.family,
        "fingerprint": config.fingerprint,
        "speech": str(config.speech).lower(),
        "shipped_voices": ",".join(_voices(parts, settings.default_voice)),
        "sampling": json.dumps({name: getattr(config.sampling, name) for name in SAMPLING}),
    }
    for name, model in configs.items():
        if name.startswith(speech):  # `TritonEngine` reads them
            for key, value in parameters.items():
                model.parameters[key].string_value = value
        (folder / name / "1").mkdir(parents=True, exist_ok=True)
        if name.startswith(speech) and settings.llm_api_key:
            # Triton shows a model's configuration to whoever asks for it.
            key_file = folder / name / "1" / LLM_KEY_FILE
            key_file.touch(mode=0o600)
            key_file.write_text(settings.llm_api_key)
        (folder / name / "config.pbtxt").write_text(text_format.MessageToString(model))
        if model.backend == "python":
            (folder / name / "1" / "model.py").write_text(code(model))
    return sorted(configs)


def _check_parts(config: ModelConfig, configs: Iterable[pb.ModelConfig], source: str) -> None:
    """Refuses a model without a part that one of the repository's models loads: the server would
    never be ready."""
    ours = (model for model in configs if model.backend == "python")
    if missing := sorted({part for model in ours for part in missing_parts(model, config)}):
        raise CheckpointError(
            f"{source}: has no {' and no '.join(missing)}, without which a Triton server is never "
            f"ready: `cosyserve doctor --model {source}` says what to add to the published folder"
        )


def _speech_model(config: ModelConfig) -> SpeechModel:
    """The name of the Triton model that speaks."""
    if config.family == "cosyvoice3":
        return "cosyvoice3"
    dit = config.flow is not None and isinstance(config.flow.estimator, DiTConfig)
    return "cosyvoice2_dit" if dit else "cosyvoice2"


def check_default_voice(settings: TritonSettings) -> None:
    """Refuses a default voice that is not there, where the server's voices are those seen here."""
    if settings.default_voice:
        shipped = shipped_voices(_parts(settings.model_dir))
        store = open_store(settings.voices or Settings.read().voices)
        VoiceLibrary(store, lambda: shipped, settings.default_voice)


def _parts(model: str) -> Parts:
    """The model without its weights; the test model, which has no folder, with them."""
    if model == testmodel.NAME:
        return testmodel.random_parts()
    source = model_folder(model)
    if not native.is_native(source):
        raise CheckpointError(
            f"{source}: not a folder of `cosyserve prepare`; make one: "
            f"`cosyserve prepare {source} --out DIR`"
        )
    return native.read(source, only=())


def _voices(parts: Parts, default_voice: str) -> list[str]:
    """The names of the model's voices; `default` is among them if a request needn't bring one."""
    return sorted(shipped_voices(parts).keys() | ({DEFAULT} if default_voice else set()))
