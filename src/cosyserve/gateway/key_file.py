"""Keys in a file, a line `NAME=KEY` each, which may change while the server runs."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

from cosyserve.errors import InputError

CHECK_SECONDS = 1.0  # between two looks at the file
COMMENT = "#"

log = logging.getLogger(__name__)


class KeyFile:
    """The keys by their names. A file that can't be read any more leaves them as they were."""

    def __init__(self, path: str) -> None:
        self._path = Path(path).expanduser()
        self._seen = self._stamp()
        self._checked = time.monotonic()
        self._keys = self._read()

    def keys(self) -> dict[str, str]:
        now = time.monotonic()
        if now - self._checked >= CHECK_SECONDS:
            self._checked = now
            self._look()
        return self._keys

    def _look(self) -> None:
        seen = self._stamp()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._keys = self._read()
        except InputError as error:
            log.error("%s; the keys are those of before", error)
        else:
            log.info("%s: %d keys", self._path, len(self._keys))

    def _stamp(self) -> tuple[int, ...]:
        """What is different whenever the file is; () if there is none."""
        try:
            status = os.stat(self._path)
        except OSError:
            return ()
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _read(self) -> dict[str, str]:
        try:
            lines = self._path.read_text("utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise InputError(f"the keys in {self._path} can't be read: {error}") from error
        keys: dict[str, str] = {}
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.lstrip().startswith(COMMENT):
                continue
            name, _, key = (part.strip() for part in line.partition("="))
            if not (name and key):  # the line is not shown: it may be a key
                raise InputError(f"{self._path}, line {number}: write NAME=KEY")
            if name in keys:
                raise InputError(f"{self._path}, line {number}: '{name}' has a key already")
            keys[name] = key
        if not keys:
            raise InputError(f"{self._path} holds no key: write a line NAME=KEY")
        return keys
