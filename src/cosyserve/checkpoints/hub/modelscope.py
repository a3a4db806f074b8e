"""A repository of ModelScope as a folder of its local cache.

Read from the environment, with the meaning they have for ModelScope's own tools:
MODELSCOPE_CACHE (default ~/.cache/modelscope/hub; what those tools put there is used),
MODELSCOPE_ENDPOINT or the older MODELSCOPE_DOMAIN (default www.modelscope.cn) and
MODELSCOPE_API_TOKEN. ModelScope has no offline switch: HF_HUB_OFFLINE=1 is it for both hubs.

The caller says which files are fetched; no path that the server lists is trusted.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from cosyserve.checkpoints.hub.http_file import (
    RefusedError,
    UnreachableError,
    arrived,
    download,
    sha256_of,
    stream,
)
from cosyserve.errors import CheckpointError

REVISION = "master"
MAX_LISTING_BYTES = 8 << 20
WHOLE = ".cosyserve-whole"  # lists the files; there only while all of them are
LOCK = ".cosyserve-lock"


@dataclass(frozen=True)
class ListedFile:
    path: str  # relative to the folder that is fetched
    size: int
    sha256: str  # or nothing


def fetch(repo: str, subfolder: str, patterns: Sequence[str], *, progress: bool) -> Path:
    owner, name = repo.split("/")
    cache = os.environ.get("MODELSCOPE_CACHE") or "~/.cache/modelscope/hub"
    # Dots are written as ModelScope's tools write them.
    root = Path(cache).expanduser() / "models" / owner / name.replace(".", "___")
    folder = root / subfolder
    try:
        answer = _listing(repo)
    except CheckpointError:
        if _is_whole(folder):
            return folder
        raise
    files = [
        file
        for file in _files(repo, answer, f"{subfolder}/" if subfolder else "")
        if any(fnmatchcase(file.path, pattern) for pattern in patterns)
    ]
    if not files:
        raise CheckpointError(
            f"ms:{repo}: no model file {f'in its folder {subfolder}' if subfolder else 'in it'} "
            "that cosyserve reads: check the name"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            _complete(repo, subfolder, folder, files, progress)
    except OSError as error:
        raise CheckpointError(
            f"ms:{repo}: can't be stored in {folder}: {error}; make room there, or set "
            "MODELSCOPE_CACHE to a folder on another disk"
        ) from error
    return folder


def _complete(
    repo: str, subfolder: str, folder: Path, files: list[ListedFile], progress: bool
) -> None:
    checked = set(_recorded(folder))
    missing = [file for file in files if not _is_here(folder, file, file in checked)]
    if not missing and set(files) == checked:
        return
    (folder / WHOLE).unlink(missing_ok=True)
    needed = sum(file.size - arrived(folder / file.path) for file in missing)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise CheckpointError(
            f"ms:{repo}: the disk of {folder} is full: {needed / 1e9:.1f} GB are needed, "
            f"{free / 1e9:.1f} GB are free; make room, or set MODELSCOPE_CACHE to a folder on "
            "another disk"
        )
    _download(repo, subfolder, folder, missing, progress)
    (folder / WHOLE).write_text(json.dumps([astuple(file) for file in files]), "utf-8")


def _download(
    repo: str, subfolder: str, folder: Path, files: list[ListedFile], progress: bool
) -> None:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not progress,
    ) as bars:
        for file in files:
            bar = bars.add_task(file.path, total=file.size)
            path = f"{subfolder}/{file.path}" if subfolder else file.path
            query = urlencode({"Revision": REVISION, "FilePath": path})
            with _explained(repo):
                download(
                    f"{_endpoint()}/api/v1/models/{repo}/repo?{query}",
                    folder / file.path,
                    size=file.size,
                    sha256=file.sha256,
                    secrets=_secrets(),
                    advance=partial(bars.advance, bar),
                )


def _listing(repo: str) -> bytes:
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise CheckpointError(
            f"ms:{repo}: HF_HUB_OFFLINE is set and the cache doesn't hold all of it: unset it; "
            + _by_hand(repo)
        )
    query = urlencode({"Revision": REVISION, "Recursive": "True"})
    body = bytearray()
    with _explained(repo):
        for chunk in stream(f"{_endpoint()}/api/v1/models/{repo}/repo/files?{query}", _secrets()):
            body += chunk
            if len(body) > MAX_LISTING_BYTES:
                raise CheckpointError(f"ms:{repo}: {_endpoint()} lists too many files for a model")
    return bytes(body)


def _files(repo: str, answer: bytes, prefix: str) -> Iterator[ListedFile]:
    """The files under `prefix`. A listing with one path that leads elsewhere is refused whole."""
    strange = f"ms:{repo}: {_endpoint()} sent no list of files: check MODELSCOPE_ENDPOINT"
    try:
        entries = json.loads(answer)["Data"]["Files"]
        listed = [_file(entry) for entry in entries if entry["Type"] != "tree"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{strange} ({type(error).__name__}: {error})") from error
    for file in listed:
        if not _stays_inside(file.path):
            raise CheckpointError(
                f"ms:{repo}: {_endpoint()} lists the file {file.path!r}, which leads out of the "
                "model's folder: nothing was fetched; don't use this source"
            )
    for file in listed:
        if file.path.startswith(prefix):
            yield ListedFile(file.path.removeprefix(prefix), file.size, file.sha256)


def _file(entry: dict[str, Any]) -> ListedFile:
    path, size, sha256 = entry["Path"], entry["Size"], entry.get("Sha256") or ""
    if not isinstance(path, str) or type(size) is not int or size < 0:
        raise ValueError(f"a file with path {path!r} and size {size!r}")
    if not isinstance(sha256, str):
        raise ValueError(f"{path!r} with sha256 {sha256!r}")
    return ListedFile(path, size, sha256.lower())


def _stays_inside(path: str) -> bool:
    return (
        path.isprintable()
        and "\\" not in path
        and not any(part in ("", ".", "..") for part in path.split("/"))
    )


def _is_here(folder: Path, file: ListedFile, checked: bool) -> bool:
    target = folder / file.path
    if not target.is_file() or target.stat().st_size != file.size:
        return False
    return checked or not file.sha256 or sha256_of(target) == file.sha256


def _recorded(folder: Path) -> list[ListedFile]:
    try:
        return [ListedFile(*entry) for entry in json.loads((folder / WHOLE).read_text("utf-8"))]
    except (OSError, ValueError, TypeError):
        return []


def _is_whole(folder: Path) -> bool:
    files = _recorded(folder)
    return bool(files) and all(_is_here(folder, file, checked=True) for file in files)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Holds the folder's lock: of two processes that fetch the same model, one waits."""
    with (folder / LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _explained(repo: str) -> Iterator[None]:
    try:
        yield
    except UnreachableError as error:
        raise CheckpointError(
            f"ms:{repo}: {_endpoint()} can't be reached ({error}); {_by_hand(repo)}"
        ) from error
    except RefusedError as error:
        if error.status in (401, 403, 404):
            raise CheckpointError(
                f"ms:{repo}: {_endpoint()} does not show it: check the name; if it is private or "
                "granted on request, set MODELSCOPE_API_TOKEN to an access token of your account "
                "there"
            ) from error
        raise CheckpointError(
            f"ms:{repo}: {_endpoint()} answered with {error}: try again later"
        ) from error


def _by_hand(repo: str) -> str:
    return (
        f"no network: on a machine that has one run `modelscope download --model {repo} "
        "--local_dir DIR`, copy DIR here, then `cosyserve prepare DIR --out NATIVE`"
    )


def _endpoint() -> str:
    endpoint = os.environ.get("MODELSCOPE_ENDPOINT") or os.environ.get("MODELSCOPE_DOMAIN")
    address = (endpoint or "www.modelscope.cn").rstrip("/")
    return address if address.startswith(("http://", "https://")) else f"https://{address}"


def _secrets() -> dict[str, str]:
    token = os.environ.get("MODELSCOPE_API_TOKEN", "").strip()
    if not token:
        return {}
    return {"Authorization": f"Bearer {token}", "Cookie": f"m_session_id={token}"}
