"""A folder that is written whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cosyserve.errors import CosyError


@contextmanager
def written_whole(folder: Path, failure: type[CosyError]) -> Iterator[Path]:
    """A folder beside `folder` to write into, which is moved there when the block ends well.

    An existing folder is never touched. That it exists, or an OSError, becomes a `failure`.
    """
    if os.path.lexists(folder):
        raise failure(f"{folder} exists already: remove it or choose another --out")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            yield partial
            partial.chmod(0o755)
            os.rename(partial, folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise failure(f"{folder}: can't be written: {error}") from error
