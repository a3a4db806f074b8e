"""A model's yaml file as plain data.

Published folders describe their model in a yaml dialect whose tags name Python code to run. Here
nothing is run: `!new:`, `!name:` and `!apply:` become the plain mapping or list that they tag, and
`!ref <key>` the value of that key.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from cosyserve.checkpoints.plain_files import read_text
from cosyserve.errors import CheckpointError

MAX_BYTES = 64 << 10  # the published ones have 7 kB
MAX_HOPS = 8
_REF = re.compile(r"<([\w.]+)>")


class _Data(yaml.SafeLoader):
    """Safe YAML, with unknown tags stripped."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Merge keys are left alone, and so refused: merged again and again they never end."""


class _Ref(str):
    """The text of a `!ref`."""


def _plain(loader: _Data, suffix: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    assert isinstance(node, yaml.ScalarNode)
    text = loader.construct_scalar(node)
    return _Ref(text) if suffix == "ref" else text


_Data.add_multi_constructor("!", _plain)
# The dialect is YAML 1.2, where 1e-6 needs no point to be a number.
_Data.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def read(file: Path) -> dict[str, Any]:
    text = read_text(file, MAX_BYTES)
    try:
        data = yaml.load(text, _Data)
    except Exception as error:  # the library trips over bad scalars in many ways
        raise CheckpointError(f"{file}: can't be read as yaml: {error}") from error
    if not isinstance(data, dict):
        raise CheckpointError(f"{file}: expected a mapping of names to values")
    return data


def get(data: dict[str, Any], path: str) -> Any:
    """The value at a dotted path, refs followed; None where there is none."""
    value: Any = data
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
        value = _followed(data, value)
    return value


def _followed(data: dict[str, Any], value: Any) -> Any:
    for _ in range(MAX_HOPS):
        match = _REF.fullmatch(value.strip()) if isinstance(value, _Ref) else None
        if match is None:
            break
        value = data.get(match.group(1))
    return value
