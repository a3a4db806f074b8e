"""The command in this process, in a home of its own."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from cosyserve.audio import AudioFormat, encode
from cosyserve.cli import main
from tests.cli.commands import NOISE, Command, Run


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "me.wav").write_bytes(encode(NOISE, AudioFormat.WAV))
    player = tmp_path / "bin" / "paplay"  # tests make no noise
    player.parent.mkdir()
    player.write_text(f"#!/bin/sh\nexec cat > '{player.parent / 'heard.pcm'}'\n")
    player.chmod(0o755)
    monkeypatch.setenv("PATH", f"{player.parent}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COSYSERVE_HOME", str(tmp_path / "kept"))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


@pytest.fixture
def cosyserve(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Command:
    def run(*words: str, status: int = 0, stdin: str | None = "") -> Run:
        monkeypatch.setattr(sys, "argv", ["cosyserve", *words])
        monkeypatch.setattr(sys, "stdin", None if stdin is None else io.StringIO(stdin))
        with pytest.raises(SystemExit) as ended:
            main()
        stdout, stderr = capfdbinary.readouterr()
        assert ended.value.code == status, stderr.decode()
        return Run(stdout, stderr.decode())

    return run
