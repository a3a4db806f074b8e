"""`cosyserve watermark`: its verdict in words and in its exit code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cosyserve.audio import AudioFormat, encode
from cosyserve.audio.watermark import Watermark, WatermarkStream
from tests.cli.commands import NOISE, Command

KEY = "the key of this server"


def test_the_verdict(home: Path, cosyserve: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    marked = WatermarkStream(Watermark.of(KEY)).push(NOISE)
    (home / "marked.mp3").write_bytes(encode(marked, AudioFormat.MP3))
    found = cosyserve("watermark", "marked.mp3", "--watermark-key", KEY).stdout.decode()
    assert re.fullmatch(r"marked: score \d+\.\d in 3\.\d s; .* 1?\d?e-\d+ .*\n", found)
    cosyserve("watermark", "marked.mp3", "--watermark-key", KEY + ".", status=1)
    monkeypatch.setenv("COSYSERVE_WATERMARK_KEY", KEY)
    cosyserve("watermark", "marked.mp3")
    assert cosyserve("watermark", "me.wav", status=1).stdout.startswith(b"not marked: score ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["me.wav"], "set COSYSERVE_WATERMARK_KEY"),
        (["me.wav", "--watermark-key", "short"], "must have 16 characters or more"),
        (["nowhere.wav", "--watermark-key", KEY], "nowhere.wav is not a file"),
        (["bin/paplay", "--watermark-key", KEY], "wav, flac, mp3"),
    ],
)
def test_mistakes_are_one_sentence(cosyserve: Command, words: list[str], message: str) -> None:
    assert message in cosyserve("watermark", *words, status=2).stderr
