"""Programs that play speech: on most machines one of them is there."""

from __future__ import annotations

import io
import shutil
import subprocess
import tempfile
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from cosyserve.audio import AudioFormat
from cosyserve.contracts import SAMPLE_RATE
from cosyserve.errors import InputError

INSTEAD = "write a file instead: -o out.wav"


class Player(NamedTuple):
    program: str
    arguments: tuple[str, ...]  # with {file} where it reads no pipe, but a whole wav file
    audio_format: AudioFormat = AudioFormat.PCM

    @property
    def streams(self) -> bool:
        return not any("{file}" in argument for argument in self.arguments)


RATE = str(SAMPLE_RATE)
PLAYERS = (
    Player("paplay", ("--raw", "--format=s16le", "--rate", RATE, "--channels=1")),
    Player("aplay", ("-q", "-t", "raw", "-f", "S16_LE", "-r", RATE, "-c", "1")),
    Player(
        "ffplay", ("-nodisp", "-autoexit", "-loglevel", "error", "-i", "pipe:0"), AudioFormat.WAV
    ),
    Player("mpv", ("--really-quiet", "--no-video", "-"), AudioFormat.WAV),
    Player("afplay", ("{file}",)),
    Player(
        "powershell",
        ("-NoProfile", "-Command", "(New-Object Media.SoundPlayer '{file}').PlaySync()"),
    ),
)


def find_player() -> Player:
    for player in PLAYERS:
        if shutil.which(player.program):
            return player
    names = ", ".join(player.program for player in PLAYERS)
    raise InputError(f"nothing on this machine plays audio (none of {names}); {INSTEAD}")


@contextmanager
def playing(player: Player) -> Iterator[IO[bytes]]:
    """Takes speech in the player's format; the end is reached when it was heard."""
    if not player.streams:
        speech = io.BytesIO()
        yield speech
        _play_whole(player, speech.getvalue())
        return
    with tempfile.TemporaryFile() as complaints:
        process = _start(player, player.arguments, subprocess.PIPE, complaints)
        assert process.stdin
        try:
            try:
                yield process.stdin
                process.stdin.close()
            except BrokenPipeError:  # it has ended, and says why
                pass
            _wait(player, process, complaints)
        finally:
            process.kill()
            process.wait()


def _play_whole(player: Player, samples: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as complaints:
        file = str(Path(folder) / "speech.wav")
        with wave.open(file, "wb") as out:
            out.setparams((1, 2, SAMPLE_RATE, 0, "NONE", ""))
            out.writeframes(samples)
        arguments = tuple(argument.replace("{file}", file) for argument in player.arguments)
        process = _start(player, arguments, subprocess.DEVNULL, complaints)
        try:
            _wait(player, process, complaints)
        finally:
            process.kill()
            process.wait()


def _start(
    player: Player, arguments: tuple[str, ...], stdin: int, complaints: IO[bytes]
) -> subprocess.Popen[bytes]:
    command = (player.program, *arguments)
    try:
        return subprocess.Popen(command, stdin=stdin, stdout=subprocess.DEVNULL, stderr=complaints)
    except OSError as error:
        message = f"{player.program} can't be started: {error.strerror}; {INSTEAD}"
        raise InputError(message) from error


def _wait(player: Player, process: subprocess.Popen[bytes], complaints: IO[bytes]) -> None:
    if process.wait() == 0:
        return
    complaints.seek(0)
    lines = complaints.read().decode(errors="replace").split("\n")
    words = next(
        (line.strip() for line in lines if line.strip()), f"it ended with {process.returncode}"
    )
    raise InputError(f"{player.program} can't play: {words:.200}; {INSTEAD}")
