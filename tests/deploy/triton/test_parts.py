"""The parts of a model that a repository can't be without."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cosyserve.checkpoints.prepare import prepare
from cosyserve.deploy.triton.check import check
from cosyserve.deploy.triton.repository import render
from cosyserve.deploy.triton.settings import TritonSettings
from cosyserve.errors import CheckpointError
from tests.published import linked


@pytest.fixture(scope="module")
def native(
    tmp_path_factory: pytest.TempPathFactory, hugging_face_lm_folder: Path, token2wav_folder: Path
) -> Path:
    """The folder of a model that can't hear a speaker."""
    folder = tmp_path_factory.mktemp("deaf")
    deaf = linked(token2wav_folder, folder / "published", without=["campplus.onnx"])
    prepare([str(hugging_face_lm_folder), str(deaf)], folder / "native", None, progress=False)
    return folder / "native"


@pytest.mark.parametrize("role", ["all", "token2wav"])
def test_a_model_that_can_not_hear_is_refused(tmp_path: Path, native: Path, role: str) -> None:
    settings = TritonSettings.of([f"role={role}"], model_dir=str(native))
    with pytest.raises(CheckpointError, match=r"native: has no speaker_encoder, .*doctor"):
        render(settings, tmp_path / "repository")
    assert not (tmp_path / "repository").exists()


def test_a_check_says_why_a_server_is_never_ready(tmp_path: Path, native: Path) -> None:
    repository = tmp_path / "repository"
    render(TritonSettings(model_dir=str(native)), repository, source="test")
    (complaint,) = check(repository)
    assert re.search("speaker_embedding/config.pbtxt: .* has no speaker_encoder", complaint)


def test_a_server_for_the_lm_needs_the_lm_alone(
    tmp_path: Path, hugging_face_lm_folder: Path, token2wav_folder: Path
) -> None:
    for source, name in ((hugging_face_lm_folder, "lm"), (token2wav_folder, "token2wav")):
        prepare([str(source)], tmp_path / name, None, progress=False)
    settings = TritonSettings.of(["role=lm"], model_dir=str(tmp_path / "lm"))
    assert render(settings, tmp_path / "repository") == ["tensorrt_llm"]
    without = settings.model_copy(update={"model_dir": str(tmp_path / "token2wav")})
    with pytest.raises(CheckpointError, match="token2wav: has no lm, "):
        render(without, tmp_path / "another")
