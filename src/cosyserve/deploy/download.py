"""What a deployment reads, from a hub or a URL into a place of its own on this machine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from cosyserve.checkpoints.folder import written_whole
from cosyserve.checkpoints.hub.http_file import RefusedError, UnreachableError, stream
from cosyserve.checkpoints.hub.hub import fetch_model
from cosyserve.errors import CheckpointError

URL = ("http://", "https://")


def download(source: str, to: Path, *, progress: bool) -> bool:
    """Brings a published model to the folder `to`, or the file of a URL to the file `to`.

    False: it is there already, and left as it is. Nothing is there before it is whole.
    """
    if to.exists():
        return False
    if source.startswith(URL):
        _download_file(source, to)
        return True
    fetched = fetch_model(source, progress=progress)
    with written_whole(to, CheckpointError) as folder:
        shutil.copytree(fetched, folder, dirs_exist_ok=True, copy_function=_link)
    return True


def _download_file(url: str, to: Path) -> None:
    partial = to.with_name(f"{to.name}.part")
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as out:
            for chunk in stream(url, {}):
                out.write(chunk)
        partial.replace(to)
    except (UnreachableError, RefusedError, ValueError) as error:
        raise CheckpointError(
            f"{url} can't be downloaded: {error}; get the file elsewhere and put it at {to}"
        ) from error
    except OSError as error:
        raise CheckpointError(f"{to}: can't be written: {error}") from error
    finally:
        partial.unlink(missing_ok=True)


def _link(source: str, target: str) -> None:
    """A second name for a file of the hub's cache; a copy where that is on another disk."""
    try:
        os.link(os.path.realpath(source), target)
    except OSError:
        shutil.copy2(source, target)
