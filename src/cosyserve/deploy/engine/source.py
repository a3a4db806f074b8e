"""The folder that an engine is made of: the speech LM in its Hugging Face form."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from cosyserve.checkpoints.config_data import check_int, short_repr
from cosyserve.checkpoints.plain_files import read_json
from cosyserve.checkpoints.published.folder import hugging_face_sizes, read_tokenizer
from cosyserve.errors import CheckpointError
from cosyserve.models.config import LMConfig
from cosyserve.text import TextTokenizer

METHODS = ("gptq", "awq")


@dataclass(frozen=True)
class Quantization:
    """How weights were quantized before they came to us."""

    method: str  # gptq or awq
    group_size: int
    zero_point: bool
    reordered: bool  # by the size of activations


@dataclass(frozen=True)
class EngineSource:
    folder: Path
    lm: LMConfig
    quantization: Quantization | None

    @classmethod
    def read(cls, folder: Path) -> EngineSource:
        """All but the weights, which TensorRT-LLM reads itself."""
        file = folder / "config.json"
        if not (file.is_file() and (folder / "model.safetensors").is_file()):
            raise CheckpointError(
                f"{folder}: not the speech LM in its Hugging Face form: make it with "
                f"`cosyserve prepare {folder} --out DIR --form hf`"
            )
        lm, _ = hugging_face_sizes(folder)
        return cls(folder, lm, _quantization(file))

    @property
    def config_file(self) -> Path:
        return self.folder / "config.json"

    def tokenizer(self) -> TextTokenizer:
        return read_tokenizer(self.folder)

    def digest(self) -> str:
        """Names the weights and their config."""
        digest = hashlib.sha256()
        for name in ("config.json", "model.safetensors"):
            with (self.folder / name).open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
        return digest.hexdigest()


def _quantization(file: Path) -> Quantization | None:
    data = read_json(file).get("quantization_config")
    if data is None:
        return None
    method = data.get("quant_method") if isinstance(data, dict) else None
    if method not in METHODS:
        raise CheckpointError(
            f"{file}: quantization_config.quant_method must be {' or '.join(METHODS)}, "
            f"got {short_repr(method)}"
        )
    size = check_int(data.get("group_size", 128), f"{file}: quantization_config.group_size")
    zero_point = bool(data.get("zero_point" if method == "awq" else "sym", False))
    return Quantization(method, size, zero_point, data.get("desc_act") is True)
