"""Configs and their numbers, out of the data of a file.

Numbers are bounded, so that no file can ask for a million layers; every problem is a
CheckpointError that names file and key.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from cosyserve.errors import CheckpointError, InputError
from cosyserve.models.config import ModelConfig

MAX_SIZE = 1 << 20  # the largest published one is a vocabulary of 158 336
MAX_DEPTH = 64  # of layers in a row
DEPTHS = {"layers", "blocks", "up_blocks", "mid", "depth", "block_layers"}
MAX_LIST = 16
MAX_REAL = 1e9

T = TypeVar("T")


def to_json(config: ModelConfig) -> dict[str, Any]:
    return asdict(config)


def from_json(data: Any, where: str) -> ModelConfig:
    """The config that `to_json` wrote; `where` names file and key in errors."""
    return _build(ModelConfig, data, where)


def check_int(value: Any, where: str, max_value: int = MAX_SIZE) -> int:
    """A size: a whole number of 1..max_value."""
    if type(value) is not int or not 1 <= value <= max_value:
        raise CheckpointError(
            f"{where} must be a whole number of 1..{max_value}, got {short_repr(value)}"
        )
    return value


def check_float(value: Any, where: str) -> float:
    """A number of 0..MAX_REAL that is not a size."""
    if type(value) not in (int, float) or not 0 <= value <= MAX_REAL:
        raise CheckpointError(
            f"{where} must be a number of 0..{MAX_REAL:g}, got {short_repr(value)}"
        )
    return float(value)


def check_list(value: Any, where: str) -> list[Any] | tuple[Any, ...]:
    """A list of 1..MAX_LIST."""
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= MAX_LIST:
        raise CheckpointError(f"{where} must be a list of 1..{MAX_LIST}, got {short_repr(value)}")
    return value


def short_repr(value: Any) -> str:
    """The value in a few characters, however large it is."""
    try:
        return reprlib.repr(value)
    except ValueError:  # Python refuses to print an integer of thousands of digits
        return f"a huge {type(value).__name__}"


@contextmanager
def as_checkpoint_error(where: str) -> Iterator[None]:
    """Errors of sizes that no model can have become a CheckpointError about their file."""
    try:
        yield
    except (InputError, TypeError, ValueError, LookupError, ArithmeticError, RuntimeError) as error:
        raise CheckpointError(f"{where}: sizes that no model can have: {error}") from error


def _build(cls: type[T], data: Any, where: str) -> T:
    if not isinstance(data, dict):
        raise CheckpointError(f"{where} must be an object, got {short_repr(data)}")
    hints = get_type_hints(cls)
    names = {f.name for f in fields(cls)}  # type: ignore[arg-type]
    if unknown := sorted(set(data) - names):
        raise CheckpointError(f"{where}: unknown key {short_repr(unknown[0])}")
    values = {key: _value(hints[key], value, f"{where}.{key}") for key, value in data.items()}
    with as_checkpoint_error(where):
        return cls(**values)


def _value(hint: Any, value: Any, where: str) -> Any:
    options = get_args(hint)
    if hint is int:
        name = where.rpartition(".")[2].partition("[")[0]
        return check_int(value, where, MAX_DEPTH if name in DEPTHS else MAX_SIZE)
    if hint is float:
        return check_float(value, where)
    if hint in (str, bool):
        if type(value) is not hint:
            raise CheckpointError(f"{where} must be a {hint.__name__}, got {short_repr(value)}")
        return value
    if get_origin(hint) is tuple:
        return tuple(
            _value(options[0], item, f"{where}[{i}]")
            for i, item in enumerate(check_list(value, where))
        )
    if get_origin(hint) is Literal:
        if value not in options:
            raise CheckpointError(f"{where} must be one of {options}, got {short_repr(value)}")
        return value
    if value is None and type(None) in options:
        return None
    classes = [option for option in options if option is not type(None)] or [hint]
    if len(classes) > 1:  # a union of parts, told apart by their `kind`; the first needs none
        kind = value.get("kind", classes[0].kind) if isinstance(value, dict) else None
        classes = [c for c in classes if c.kind == kind]
        if not classes:
            raise CheckpointError(f"{where}.kind: unknown kind {short_repr(kind)}")
    return _build(classes[0], value, where)
