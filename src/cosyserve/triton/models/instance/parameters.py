"""What a model's config.pbtxt says under `parameters`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cosyserve.errors import InputError


class ModelParameters(dict[str, str]):
    @classmethod
    def of(cls, config: Mapping[str, Any]) -> ModelParameters:
        """`config`: the model's configuration, as Triton hands it over."""
        return cls({key: value["string_value"] for key, value in config["parameters"].items()})

    def __missing__(self, key: str) -> str:
        raise InputError(
            f"config.pbtxt has no parameter '{key}': another version has rendered this repository; "
            "render it anew with `cosyserve deploy triton`"
        )
