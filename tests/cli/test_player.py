"""Players are programs of other people: here scripts that only note what they get."""

from __future__ import annotations

import io
import time
import wave
from pathlib import Path

import pytest

from cosyserve.audio import AudioFormat
from cosyserve.cli.player import PLAYERS, Player, find_player, playing
from cosyserve.errors import InputError
from tests.waiting import wait_until

BY_NAME = {player.program: player for player in PLAYERS}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder with programs, but for those that scripts need."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def install(folder: Path, program: str, script: str) -> Player:
    file = folder / program
    file.write_text(f"#!/bin/sh\ncd '{folder}'\nPATH=/usr/bin:/bin\n{script}\n")
    file.chmod(0o755)
    return BY_NAME[program]


def play(player: Player) -> None:
    """More than a pipe holds."""
    with playing(player) as sink:
        for _ in range(100):
            sink.write(bytes(10_000))


def test_the_first_that_is_there_plays(folder: Path) -> None:
    with pytest.raises(InputError, match=r"none of paplay, aplay, .*: -o out\.wav"):
        find_player()
    afplay = install(folder, "afplay", "")
    assert find_player() == afplay
    aplay = install(folder, "aplay", "")
    assert find_player() == aplay


def test_a_player_hears_the_beginning_before_the_end_is_made(folder: Path) -> None:
    aplay = install(folder, "aplay", 'echo "$@" > arguments; head -c 4 > first; cat > rest')
    with playing(aplay) as sink:
        sink.write(b"head")
        sink.flush()
        first = folder / "first"
        wait_until(lambda: first.exists() and first.read_bytes() == b"head")
        sink.write(b"tail")
    assert (folder / "rest").read_bytes() == b"tail"
    assert (folder / "arguments").read_text() == "-q -t raw -f S16_LE -r 24000 -c 1\n"


def test_a_player_that_reads_no_pipe_gets_a_whole_file(folder: Path) -> None:
    afplay = install(folder, "afplay", 'cat "$1" > heard')
    assert afplay.audio_format is AudioFormat.PCM
    with playing(afplay) as sink:
        sink.write(b"\x01\x02" * 10)
        assert not (folder / "heard").exists()
    with wave.open(io.BytesIO((folder / "heard").read_bytes())) as heard:
        assert (heard.getframerate(), heard.getnchannels(), heard.getnframes()) == (24_000, 1, 10)
        assert heard.readframes(10) == b"\x01\x02" * 10


@pytest.mark.parametrize("program", ["aplay", "afplay"])
def test_a_player_that_fails_says_why(folder: Path, program: str) -> None:
    player = install(folder, program, "echo >&2; echo 'device busy' >&2; exit 3")
    with pytest.raises(InputError, match="play: device busy; write a file"):
        play(player)
    silent = install(folder, program, "exit 3")
    with pytest.raises(InputError, match="it ended with 3"):
        play(silent)


def test_a_player_that_somebody_closes_is_no_fault(folder: Path) -> None:
    play(install(folder, "aplay", "exit 0"))


def test_nothing_plays_on_after_an_interruption(folder: Path) -> None:
    aplay = install(folder, "aplay", "echo $$ > pid; exec sleep 60")
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), playing(aplay):
        raise KeyboardInterrupt
    assert time.monotonic() - began < 30
