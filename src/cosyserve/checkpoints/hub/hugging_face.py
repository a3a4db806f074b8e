"""A repository of the Hugging Face Hub as a folder of its local cache.

Resume, the cache (HF_HOME), mirrors (HF_ENDPOINT), tokens (HF_TOKEN, `hf auth login`), offline mode
(HF_HUB_OFFLINE) and progress bars are the official library's; here its failures become one message
that says what to do. The caller says which files are fetched.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cosyserve.errors import CheckpointError


def fetch(repo: str, subfolder: str, patterns: Sequence[str], *, progress: bool) -> Path:
    # Imported late: the library takes a third of a second, and reads its environment at import.
    from huggingface_hub import snapshot_download

    allowed = [f"{subfolder}/{pattern}" if subfolder else pattern for pattern in patterns]
    refusal = _ask(repo)
    try:
        with _bars(progress):
            root = snapshot_download(
                repo, allow_patterns=allowed, local_files_only=refusal is not None
            )
    except Exception as error:
        reason = refusal or error
        raise CheckpointError(_explained(reason, repo, subfolder)) from reason
    folder = Path(root) / subfolder
    if not folder.is_dir():
        raise CheckpointError(
            f"{repo}: no model file {f'in its folder {subfolder}' if subfolder else 'in it'} that "
            "cosyserve reads: check the name"
        )
    return folder


def _ask(repo: str) -> Exception | None:
    """Why the Hub can't be used; None if it can.

    The download asks the same first, but would wait for a silent server for ever.
    """
    from huggingface_hub import HfApi, constants

    try:
        HfApi().model_info(repo, revision="main", timeout=constants.HF_HUB_ETAG_TIMEOUT)
    except Exception as error:  # of any kind: the library lets those of its HTTP client through
        return error
    return None


@contextmanager
def _bars(visible: bool) -> Iterator[None]:
    from huggingface_hub.utils.tqdm import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    if visible or are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()


def _explained(error: Exception, repo: str, subfolder: str) -> str:
    from huggingface_hub import constants, errors

    hub = constants.ENDPOINT
    if isinstance(error, errors.GatedRepoError):
        return (
            f"{repo}: access is granted on request: ask for it on {hub}/{repo}, then log in with "
            "`hf auth login` or set HF_TOKEN"
        )
    status = error.response.status_code if isinstance(error, errors.HfHubHTTPError) else None
    if isinstance(error, errors.RepositoryNotFoundError) or status in (401, 403, 404):
        return (
            f"{repo}: no such folder here, and {hub} does not show it: check the name; if it "
            "is private, log in with `hf auth login` or set HF_TOKEN to a valid token"
        )
    if status is not None:
        return (
            f"{repo}: {hub} answered with status {status}: try again later, or set HF_ENDPOINT to "
            "a mirror"
        )
    if isinstance(error, errors.HFValidationError):
        return f"{repo}: not a name that Hugging Face allows: {error}"
    # Only the local disk gives error numbers; the library's transfer client gives but the words.
    on_disk = isinstance(error, OSError) and error.errno is not None
    if on_disk or os.strerror(errno.ENOSPC) in str(error):
        return (
            f"{repo}: can't be stored in {constants.HF_HUB_CACHE}: {error}; make room there, or "
            "set HF_HOME to a folder on another disk"
        )
    if isinstance(error, errors.OfflineModeIsEnabled):
        why = "HF_HUB_OFFLINE is set and the cache doesn't hold all of it: unset it"
    else:
        why = f"{hub} can't be reached ({type(error).__name__}: {error})"
    only = f" --include '{subfolder}/*'" if subfolder else ""
    copy = f"DIR/{subfolder}" if subfolder else "DIR"
    return (
        f"{repo}: {why}; no network: on a machine that has one run "
        f"`hf download {repo}{only} --local-dir DIR`, copy DIR here, then "
        f"`cosyserve prepare {copy} --out NATIVE`"
    )
