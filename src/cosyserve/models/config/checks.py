"""Sizes that contradict each other are a ValueError."""

from __future__ import annotations


def require(consistent: bool, complaint: str) -> None:
    if not consistent:
        raise ValueError(complaint)


def agree(what: str, one: str, ours: int, other: str, theirs: int) -> None:
    require(ours == theirs, f"{what}: the {one} has {ours}, the {other} {theirs}")
