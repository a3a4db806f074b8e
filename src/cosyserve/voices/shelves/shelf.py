"""Where bytes are kept by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Shelf(Protocol):
    """Bytes by name. Raises `StoreError` when it can't be reached."""

    def names(self) -> Iterable[str]: ...

    def read(self, name: str, max_bytes: int) -> bytes | None:
        """The first bytes, at most `max_bytes`; None: nothing has that name."""
        ...

    def write(self, name: str, data: bytes, *, replace: bool) -> bool:
        """Keeps the bytes. False: the name is taken, and `replace` is off."""
        ...

    def rewrite(self, name: str, data: bytes) -> bool:
        """Keeps the bytes instead of others. False: nothing has that name, or no longer."""
        ...

    def remove(self, name: str) -> bool:
        """Removes the bytes. False: nothing had that name."""
        ...

    def where(self, name: str) -> str:
        """The place of the bytes, for people."""
        ...

    def beside(self, kind: str) -> Shelf:
        """A shelf at the same place for bytes of another kind."""
        ...
