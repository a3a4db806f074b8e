"""A stage of a deployment: what it needs, what it runs, what it makes."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cosyserve.triton.process import answers


@dataclass(frozen=True)
class Command:
    """A program that does its work and ends."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """As it is typed into a shell."""
        variables = (f"{name}={shlex.quote(value)}" for name, value in self.env.items())
        return " ".join((*variables, shlex.join(self.argv)))


@dataclass(frozen=True)
class ServerCommand(Command):
    """A program that stays; it is ready when its URL answers."""

    ready_url: str = ""
    ports: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{super().__str__()} &"


@dataclass(frozen=True)
class Need:
    """What must be there before a stage, and the sentence for whoever lacks it."""

    met: Callable[[], bool]
    otherwise: str


@dataclass(frozen=True)
class Stage:
    """`makes` are files and folders, each made whole or not at all: where all of them are there
    and were made by the same commands, the stage is done."""

    number: int
    title: str
    commands: tuple[Command, ...]
    needs: tuple[Need, ...] = ()
    makes: tuple[Path, ...] = ()

    @property
    def text(self) -> str:
        """The commands, as they are typed into a shell."""
        return "\n".join(str(command) for command in self.commands)

    @property
    def serves(self) -> bool:
        return any(isinstance(command, ServerCommand) for command in self.commands)


def path_needed(path: Path, advice: str) -> Need:
    return Need(path.exists, f"{path} is not there: {advice}")


def program_needed(name: str, advice: str) -> Need:
    return Need(lambda: shutil.which(name) is not None, f"{name} is not on PATH: {advice}")


def answer_needed(url: str, advice: str) -> Need:
    return Need(lambda: answers(url), f"nothing answers at {url}: {advice}")
