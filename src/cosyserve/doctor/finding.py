"""A finding of the doctor."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """A part of the machine or of the model folder, and what to do where it is not good."""

    name: str
    detail: str
    good: bool | None = None  # None: a fact, perhaps with advice; False: something can't work
    advice: str = ""
