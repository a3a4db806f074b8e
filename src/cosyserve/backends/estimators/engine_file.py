"""The file of an engine: its name says what it was made of and for; it is written whole."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import nn

from cosyserve.errors import CheckpointError

FORM = 1  # of the graphs: to be raised when they change, so that engines are built anew


@dataclass(frozen=True)
class EngineFile:
    folder: Path
    graph: str
    weights: str  # as `digest` names them
    precision: str
    library: str = ""  # with its version
    gpu: str = ""
    suffix: str = "plan"

    @property
    def path(self) -> Path:
        """Whatever makes it another engine makes it another file."""
        parts = (self.graph, self.weights, self.precision, self.library, self.gpu, self.suffix)
        return self.folder / ".".join(_word(part) for part in parts if part)

    def read(self) -> bytes:
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise CheckpointError(f"{self.path}: can't be read: {error.strerror}") from error

    def write(self, data: bytes) -> None:
        try:
            handle, partial = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=self.folder)
            try:
                with os.fdopen(handle, "wb") as stream:
                    stream.write(data)
                os.chmod(partial, 0o644)
                os.replace(partial, self.path)
            finally:
                Path(partial).unlink(missing_ok=True)
        except OSError as error:
            raise CheckpointError(f"{self.path}: can't be written: {error.strerror}") from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One process at a time: workers that start together want the same engine."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / ".lock").open("w")
        except OSError as error:
            raise CheckpointError(f"{self.folder}: can't be written: {error.strerror}") from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed
            yield


def digest(network: nn.Module, *sizes: object) -> str:
    """Names a network's weights and sizes, and the form of its graphs."""
    found = hashlib.sha256(repr((FORM, *sizes)).encode())
    for name, weight in network.state_dict().items():
        found.update(name.encode())
        found.update(np.ascontiguousarray(weight.float().cpu().numpy()).data)
    return found.hexdigest()[:16]


def _word(text: str) -> str:
    """As a part of a file's name."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")
