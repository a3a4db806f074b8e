"""A folder is there whole, or nothing is."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosyserve.checkpoints.folder import written_whole
from cosyserve.errors import CheckpointError, InputError


def test_a_folder_appears_when_it_is_whole(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "folder"
    with written_whole(folder, InputError) as partial:
        (partial / "file").write_text("x")
        assert not folder.exists()
    assert [path.name for path in folder.parent.iterdir()] == ["folder"]
    assert (folder / "file").read_text() == "x"
    assert folder.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("error", [InputError("as you wish"), KeyError("x"), KeyboardInterrupt()])
def test_what_goes_wrong_leaves_nothing_and_is_not_renamed(
    tmp_path: Path, error: BaseException
) -> None:
    def write() -> None:
        with written_whole(tmp_path / "folder", CheckpointError) as partial:
            (partial / "file").write_text("x")
            raise error

    with pytest.raises(type(error)) as caught:
        write()
    assert caught.value is error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("failure", [InputError, CheckpointError])
def test_a_full_disk_and_a_taken_name_are_errors_of_ours(
    tmp_path: Path, failure: type[InputError] | type[CheckpointError]
) -> None:
    folder = tmp_path / "folder"
    with (
        pytest.raises(failure, match="folder: can't be written: disk full"),
        written_whole(folder, failure),
    ):
        raise OSError("disk full")
    folder.symlink_to("nowhere")
    with pytest.raises(failure, match="exists already"), written_whole(folder, failure):
        raise AssertionError("nothing is written")
    (tmp_path / "file").touch()
    inside_a_file = written_whole(tmp_path / "file" / "folder", failure)
    with pytest.raises(failure, match="can't be written"), inside_a_file:
        raise AssertionError("nothing is written")
