"""What many tests share: models on disk, never changed; a Triton server that obeys."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests import published
from tests.triton.scripted import Scripted, scripted

os.environ.setdefault("COSYSERVE_MODEL", "test")  # the small voice takes its time
torch.set_num_threads(1)  # tests are small: threads only wait for each other
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # as long as nobody has imported triton


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


@pytest.fixture(scope="session")
def scripted_triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    with scripted(tmp_path_factory.mktemp("triton") / "repository") as running:
        yield running
