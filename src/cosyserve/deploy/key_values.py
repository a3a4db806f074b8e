"""Settings that a command line gives as `key=value`: typed, bounded, explained."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Annotated, Any, Self, get_args

from annotated_types import Ge, Le
from pydantic import BaseModel, BeforeValidator, ConfigDict, Strict, ValidationError
from pydantic.fields import FieldInfo

from cosyserve.errors import InputError

# Ends of lines among them, as YAML knows them, and bytes that are no text.
NOT_FILLED_IN = re.compile(r"[$\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def _int(value: object) -> object:
    """Of a text, what Python reads as a whole number: pydantic would read 1.0, too."""
    try:
        return int(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _bool(value: object) -> object:
    """Of a text, `true` and `false` only: pydantic would read `yes` and `1`, too."""
    words = {"true": True, "false": False}
    return words.get(value.lower(), value) if isinstance(value, str) else value


Int = Annotated[int, Strict(), BeforeValidator(_int)]
Bool = Annotated[bool, Strict(), BeforeValidator(_bool)]


class KeyValues(BaseModel):
    """A class of settings; the docstring of each says what it is for."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", protected_namespaces=(), use_attribute_docstrings=True
    )

    @classmethod
    def of(cls, pairs: Iterable[str], **values: Any) -> Self:
        """From `key=value` texts, over `values`."""
        for pair in pairs:
            key, equals, value = pair.partition("=")
            if not equals or key not in cls.model_fields:
                keys = ", ".join(cls.model_fields)
                raise InputError(f"{pair!r:.80}: use key=value with one of {keys}")
            if NOT_FILLED_IN.search(value):
                raise InputError(
                    f"{key}: a value that holds '$' or a control character was not filled in"
                )
            values[key] = value
        try:
            return cls(**values)
        except ValidationError as error:
            first = error.errors()[0]
            key = str(first["loc"][0])
            if first["type"] == "value_error":  # it says itself what is allowed
                raise InputError(f"{key}: {first['ctx']['error']}") from error
            allowed = _allowed(cls.model_fields[key])
            raise InputError(f"{key} must be {allowed}, got {values[key]!r:.40}") from error

    def given(self) -> list[str]:
        """The settings that were given, as `of` takes them."""
        values = self.model_dump(include=self.model_fields_set)
        return [f"{key}={_text(value)}" for key, value in values.items()]

    @classmethod
    def help_text(cls) -> str:
        """Every setting with its default and what it is for, a paragraph each."""
        return "\n\n".join(
            f"{key}={_text(field.default)}  {field.description}"
            for key, field in cls.model_fields.items()
        )


def _text(value: object) -> str:
    """A value as it is written in `key=value`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _allowed(field: FieldInfo) -> str:
    """The values that a setting may have."""
    kind = field.annotation
    if kind is bool:
        return "true or false"
    if choices := get_args(kind):
        return f"one of {', '.join(choices)}"
    low = next((mark.ge for mark in field.metadata if isinstance(mark, Ge)), -math.inf)
    high = next((mark.le for mark in field.metadata if isinstance(mark, Le)), math.inf)
    return f"{'a whole number' if kind is int else 'a number'} of {low:g}..{high:g}"
