"""A repository for the TensorRT-LLM backend, as rendered, on a real tritonserver. In that backend's
place is one that keeps its rules: the real one needs a GPU."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cosyserve.checkpoints.model import Model
from cosyserve.contracts import SAMPLES_PER_TOKEN, Floats, SpeechRequest, Voice
from cosyserve.deploy.triton.check import check
from cosyserve.deploy.triton.repository import render
from cosyserve.deploy.triton.settings import TritonSettings
from cosyserve.errors import CosyError
from cosyserve.triton.engine import TritonEngine
from cosyserve.triton.process import Ports, TritonProcess, _command
from tests.triton.server import Served, serving

SHORTEST = 30  # of the backend's answers, in tokens


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an engine and with the backends of a server."""
    folder = tmp_path_factory.mktemp("tensorrtllm")
    (folder / "engine").mkdir()
    for name in ("config.json", "rank0.engine"):
        (folder / "engine" / name).touch()
    _command(folder)
    if not (folder / "backends").exists():
        pytest.skip("an installed tritonserver has its own backends")
    (folder / "backends" / "tensorrtllm").mkdir()
    shutil.copy(
        Path(__file__).with_name("tensorrtllm_backend.py"),
        folder / "backends" / "tensorrtllm" / "model.py",
    )
    return folder


def knobs(place: Path) -> list[str]:
    return ["triton_backend=tensorrtllm", f"engine_dir={place / 'engine'}"]


def backends(place: Path) -> str:
    return f"--backend-directory={place / 'backends'}"


@pytest.fixture(scope="module")
def triton(place: Path, either_model: Model, native3_folder: Path) -> Iterator[Served]:
    family = either_model.config.family
    model = str(native3_folder) if family == "cosyvoice3" else "test"
    with serving(
        *(place / family, model, *knobs(place)),
        models=[family, "token2wav", "tensorrt_llm"],
        options=[backends(place)],
    ) as server:
        yield server


def test_its_tokens_are_spoken(triton: Served, either_voice: Voice) -> None:
    async def say(seeds: list[int]) -> list[Floats]:
        engine = TritonEngine.of(f"triton://{triton.grpc}")
        await engine.start()
        try:
            found = []
            for seed in seeds:
                request = SpeechRequest("One, two.", either_voice, seed=seed, stream=True)
                found.append([chunk.samples async for chunk in engine.open(request)])
            return [np.concatenate(chunks) for chunks in found]
        finally:
            await engine.close()

    assert check(triton.repository) == []
    first, other, again = asyncio.run(say([1, 2, 1]))
    assert len(first) == SHORTEST * SAMPLES_PER_TOKEN
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.01


def test_what_it_can_not_be_loaded_without_is_seen_before(place: Path, tmp_path: Path) -> None:
    repository, name = tmp_path / "repository", "tokenizer_dir"
    render(TritonSettings.of([*knobs(place), "role=lm"], model_dir="test"), repository)
    assert check(repository) == []
    config = repository / "tensorrt_llm" / "config.pbtxt"
    config.write_text(config.read_text().replace(f'"{name}"', '"something"'))
    (complaint,) = check(repository)
    assert f"parameter '{name}' is missing" in complaint
    with TritonProcess(repository, Ports.free(), [backends(place)]) as process:
        with pytest.raises(CosyError, match="ended at its start"):
            process.wait_ready()
        assert f"Cannot find parameter with name: {name}" in process.log.read_text()
