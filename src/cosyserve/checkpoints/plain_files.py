"""Pickles, safetensors and JSON of model folders, read as plain data.

Nothing is executed, nothing is larger in memory than it is on disk, and every problem is a
CheckpointError that names the file. Tensors stay mapped to their file.
"""

from __future__ import annotations

import json
import pickletools
import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from cosyserve.errors import CheckpointError

State = dict[str, Tensor]

TRAINING_KEYS = {"epoch", "step"}  # what the original's trainer adds to a state dict
MAX_JSON_BYTES = 32 << 20  # a tokenizer.json has about 11 MB
MAX_HEADER_BYTES = 4 << 20  # of a safetensors file; 1121 tensors need 0.1 MB
MAX_PICKLE_BYTES = 2 << 20  # without the tensors; 1121 of them need 0.2 MB
MAX_KEY = 200
MAX_REASON = 200


def require_file(file: Path) -> None:
    """Refuses what is missing, and what may never end: pipes, devices."""
    if not file.exists():
        raise CheckpointError(f"{file}: missing")
    if not file.is_file():
        raise CheckpointError(f"{file}: not a file")


def read_text(file: Path, max_bytes: int) -> str:
    require_file(file)
    try:
        with file.open("rb") as stream:
            data = stream.read(max_bytes + 1)
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{file}: can't be read: {error}") from error
    if len(data) > max_bytes:
        raise CheckpointError(
            f"{file}: larger than the {max_bytes} bytes that such a file may have"
        )
    return text


def read_json(file: Path, max_bytes: int = MAX_JSON_BYTES) -> dict[str, Any]:
    try:
        data = json.loads(read_text(file, max_bytes))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file}: not JSON: {error}") from error
    if not isinstance(data, dict):
        raise CheckpointError(f"{file}: expected a JSON object")
    return data


def read_tensors(file: Path) -> State:
    """All tensors of a safetensors file."""
    require_file(file)
    try:
        with file.open("rb") as stream:
            header = int.from_bytes(stream.read(8), "little")
        if header > MAX_HEADER_BYTES:
            raise ValueError(f"a header of {header} bytes")
        return load_file(file)
    except Exception as error:  # the library and torch raise many kinds on broken files
        raise CheckpointError(f"{file}: not a whole safetensors file: {reason(error)}") from error


def read_state(file: Path) -> State:
    """The flat state dict of a pickle."""
    state = unpickle(file)
    if not isinstance(state, dict):
        raise CheckpointError(f"{file}: holds a {type(state).__name__}, not a dict of tensors")
    largest = file.stat().st_size
    tensors = {}
    for key, value in state.items():
        if not isinstance(key, str) or len(key) > MAX_KEY:
            raise CheckpointError(f"{file}: a key that is not the name of a tensor")
        if key in TRAINING_KEYS:
            continue
        if not is_plain(value, largest):
            raise CheckpointError(f"{file}: '{key}' is no plain tensor, but {kind(value)}")
        tensors[key] = value.detach()
    return tensors


def unpickle(file: Path) -> Any:
    """What torch has saved: plain containers and tensors. Code in the file is refused."""
    require_file(file)
    try:
        _check_archive(file)
        return torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # a broken or hostile pickle may raise anything
        raise CheckpointError(f"{file}: damaged, or not plain tensors: {reason(error)}") from error


def is_plain(value: Any, largest: int) -> bool:
    """A tensor of numbers in memory, of at most `largest` bytes: views of a single number, repeated
    a billion times, are not."""
    return (
        type(value) in (Tensor, torch.nn.Parameter)
        and value.layout is torch.strided
        and value.device.type == "cpu"
        and not (value.is_quantized or value.is_nested or value.is_complex())
        and value.nbytes <= largest
    )


def kind(value: Any) -> str:
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    if value.is_nested:
        return "a nested tensor"
    return f"a {value.dtype} {value.layout} tensor on {value.device} of shape {list(value.shape)}"


def reason(error: Exception) -> str:
    """The line of the error's text that says why, shortened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reasons = [line for line in lines if line.startswith("WeightsUnpickler error")] or lines
    return (reasons or [type(error).__name__])[0][:MAX_REASON]


def _check_archive(file: Path) -> None:
    """Checks that the file has the zip form that torch writes since 1.6, uncompressed."""
    with zipfile.ZipFile(file) as archive:
        for entry in archive.infolist():
            if entry.compress_type != zipfile.ZIP_STORED:
                raise ValueError("its contents are compressed")
            if entry.filename.endswith("data.pkl"):
                if entry.file_size > MAX_PICKLE_BYTES:
                    raise ValueError(f"a pickle of {entry.file_size} bytes")
                _check_tuples(archive.read(entry))


def _check_tuples(pickled: bytes) -> None:
    """Checks that no tuple is used twice, as torch never does: a few dozen, each holding the one
    before it twice, are a key whose hash takes years."""
    tuples, last = set(), ""
    for opcode, argument, _ in pickletools.genops(pickled):
        if opcode.name.endswith("PUT") and last.startswith("TUPLE"):
            tuples.add(argument)
        elif opcode.name.endswith("GET") and argument in tuples:
            raise ValueError("a tuple that is used twice")
        last = opcode.name
