"""The public API is what is documented, and costs nothing to import."""

from __future__ import annotations

import subprocess
import sys

import pytest

import cosyserve


def test_public_names() -> None:
    assert cosyserve.__all__ == [
        "TTS",
        "AudioChunk",
        "CosyError",
        "LocalEngine",
        "Mode",
        "Sampling",
        "SpeechRequest",
        "Voice",
        "__version__",
        "load",
    ]
    assert all(getattr(cosyserve, name) is not None for name in cosyserve.__all__)
    assert sorted(dir(cosyserve)) == sorted(cosyserve.__all__)
    with pytest.raises(AttributeError, match="nonsense"):
        cosyserve.nonsense  # noqa: B018


def modules_after(statement: str) -> set[str]:
    code = f"{statement}; import sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


@pytest.mark.server
def test_importing_the_package_imports_no_torch() -> None:
    assert not {"torch", "numpy", "onnx"} & modules_after("import cosyserve")


@pytest.mark.server
@pytest.mark.parametrize("room", ["contracts", "audio", "settings", "cli", "server"])
def test_rooms_of_the_gateway_import_no_torch(room: str) -> None:
    assert "torch" not in modules_after(f"import cosyserve.{room}")
