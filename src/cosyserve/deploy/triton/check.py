"""What is wrong with a Triton repository, ours or another's, before a server is started on it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

from cosyserve.checkpoints import native
from cosyserve.deploy.triton import tensorrt_llm_check
from cosyserve.deploy.triton.models import SpeechModel, code, missing_parts, models
from cosyserve.deploy.triton.settings import TritonSettings
from cosyserve.errors import CheckpointError, InputError
from cosyserve.triton.process import model_folders

PLACEHOLDER = re.compile(r"\$\{\w*\}?")
OURS = "threads"  # a parameter that only our models have


def check(repository: Path) -> list[str]:
    """Complaints, each of which names a file or a model; none: a server can serve it."""
    configs: dict[str, pb.ModelConfig] = {}
    complaints: list[str] = []
    for folder in model_folders(repository):
        try:
            configs[folder.name] = _read(folder)
        except InputError as error:
            complaints.append(str(error))
    if not configs and not complaints:
        return [f"{repository}: holds no model"]
    asked_by_ours = all(_is_ours(m) for n, m in configs.items() if n.startswith("cosyvoice"))
    cosyvoice3 = "cosyvoice3" in configs
    ours = _ours(cosyvoice3)
    for name, model in configs.items():
        if model.backend == tensorrt_llm_check.BACKEND:
            found = tensorrt_llm_check.problems(
                model, asked_by_ours=asked_by_ours, cosyvoice3=cosyvoice3
            )
            complaints += [f"{repository / name / 'config.pbtxt'}: {one}" for one in found]
        complaints += _problems(repository / name, model, ours.get(name))
    return complaints + list(_missing(configs))


def _is_ours(model: pb.ModelConfig) -> bool:
    return OURS in model.parameters


def _read(folder: Path) -> pb.ModelConfig:
    file = folder / "config.pbtxt"
    if not file.is_file():
        raise InputError(f"{file}: missing")
    text = file.read_text("utf-8", "replace")
    left, model, trouble = PLACEHOLDER.search(text), pb.ModelConfig(), ""
    try:
        text_format.Parse(text, model)
    except text_format.ParseError as error:
        trouble = f"{file}: {error}"
    if left and (trouble or model.backend != tensorrt_llm_check.BACKEND):  # which knows them
        line = text[: left.start()].count("\n") + 1
        trouble = f"{file}, line {line}: {left.group()} was never filled in"
    if trouble:
        raise InputError(trouble)
    return model


def _problems(folder: Path, model: pb.ModelConfig, ours: pb.ModelConfig | None) -> Iterator[str]:
    """Complaints about a model; `ours` is the one that we render under its name."""
    file = folder / "config.pbtxt"
    if model.name and model.name != folder.name:
        yield f"{file}: the name is '{model.name}', the folder's '{folder.name}'"
    versions = [path for path in folder.iterdir() if path.name.isdigit()]
    if not versions:
        yield f"{folder}: no version; expected a folder '1'"
    if ours is None or model.backend != ours.backend:  # it has no tensors of ours
        return
    yield from _tensors(file, model, ours)
    for version in versions:
        if not (version / "model.py").is_file():
            yield f"{version / 'model.py'}: missing"
    if _is_ours(model):
        yield from _of_our_code(file, model, ours, versions)


def _of_our_code(
    file: Path, model: pb.ModelConfig, ours: pb.ModelConfig, versions: list[Path]
) -> Iterator[str]:
    for module in (version / "model.py" for version in versions):
        if module.is_file() and module.read_text("utf-8", "replace") != code(ours):
            yield f"{module}: not the import that `cosyserve deploy` writes"
    for key in sorted(ours.parameters.keys() - model.parameters.keys()):
        yield f"{file}: parameter '{key}' is missing"
    weights = model.parameters["model_dir"].string_value
    if not native.is_native(Path(weights)):
        yield f"{file}: model_dir '{weights}' is no folder of `cosyserve prepare`"
        return
    try:
        config = native.read(Path(weights), only=()).config
    except CheckpointError as error:
        yield f"{file}: model_dir: {error}"
        return
    for part in missing_parts(ours, config):
        yield f"{file}: model_dir '{weights}' has no {part}, without which it is never ready"


def _tensors(file: Path, model: pb.ModelConfig, ours: pb.ModelConfig) -> Iterator[str]:
    """Clients send another's model what ours must have, and read its first output."""
    for what in ("input", "output"):
        theirs = {tensor.name: tensor for tensor in getattr(model, what)}
        for number, tensor in enumerate(getattr(ours, what)):
            needed = not tensor.optional if what == "input" else number == 0 or _is_ours(model)
            other = theirs.get(tensor.name)
            if other is None:
                if needed:
                    yield f"{file}: {what} '{tensor.name}' is missing"
                continue
            kind, dims = pb.DataType.Name(tensor.data_type), list(tensor.dims)
            if (pb.DataType.Name(other.data_type), list(other.dims)) != (kind, dims):
                yield f"{file}: {what} '{tensor.name}' must be {kind} {dims}"


def _missing(configs: dict[str, pb.ModelConfig]) -> Iterator[str]:
    """Complaints about models that others send requests to, and that are not there."""
    for name, model in configs.items():
        if "token2wav" not in model.parameters:
            continue
        needed = {model.parameters["token2wav"].string_value, "audio_tokenizer"}
        needed.add("speaker_embedding")
        lm_elsewhere = model.parameters["role"].string_value == "token2wav"
        if not (model.parameters["llm_url"].string_value or lm_elsewhere):
            needed.add("tensorrt_llm")
        for other in sorted(needed - configs.keys()):
            yield f"{name} asks the model '{other}', which is not there"


def _ours(cosyvoice3: bool) -> dict[str, pb.ModelConfig]:
    """Every model that we render for a family, by name."""
    speech: tuple[SpeechModel, ...] = ("cosyvoice2", "cosyvoice2_dit")
    configs: dict[str, pb.ModelConfig] = {}
    for name in ("cosyvoice3",) if cosyvoice3 else speech:
        for decoupled in (False, True):
            configs |= models(TritonSettings(decoupled_mode=decoupled), name)
    return configs
