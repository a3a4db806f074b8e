"""Models on disk that many tests read: written once per run, never changed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests import published

torch.set_num_threads(1)  # tests are small: threads only wait for each other


@pytest.fixture(scope="session")
def cosyvoice2_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published") / "cosyvoice2"
    published.write_cosyvoice2(folder)
    return folder


@pytest.fixture(scope="session")
def hugging_face_lm_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published") / "lm"
    published.write_hugging_face_lm(folder)
    return folder


@pytest.fixture(scope="session")
def token2wav_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published") / "token2wav"
    published.write_token2wav(folder)
    return folder
