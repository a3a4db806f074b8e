"""Runs stages in their order: what is done is skipped, what is missing is said, servers stay until
the end.

What was done stands in `stages.json` of the deployment's folder.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosyserve.deploy.stages.stage import Command, ServerCommand, Stage
from cosyserve.errors import CosyError, InputError
from cosyserve.settings import Settings
from cosyserve.signals import ENDING, own_handlers
from cosyserve.triton.process import answers

READY_SECONDS = 600.0
STOP_SECONDS = 40.0  # for a server to end once nobody speaks

Say = Callable[[str], None]


@dataclass(frozen=True)
class Started:
    """A server that runs, and the file that has what it says."""

    server: ServerCommand
    process: subprocess.Popen[bytes]
    log: Path

    def wait_ready(self) -> None:
        until = time.monotonic() + READY_SECONDS
        while not answers(self.server.ready_url):
            self.check("at its start")
            if time.monotonic() > until:
                raise CosyError(
                    f"{self.server} is not ready after {READY_SECONDS:.0f} s: see {self.log}"
                )
            time.sleep(0.2)

    def check(self, when: str) -> None:
        if self.process.poll() is not None:
            raise CosyError(f"{self.server} ended {when}: {self.log} says why")


class StageRecord:
    """What was made, by which commands."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "stages.json"

    def is_done(self, stage: Stage) -> bool:
        there = bool(stage.makes) and all(path.exists() for path in stage.makes)
        return there and self._read().get(_key(stage), stage.text) == stage.text

    def add(self, stage: Stage) -> None:
        """The stage is done; what later ones have made of its earlier products is out of date."""
        done, key = self._read(), _key(stage)
        later = [*done][[*done].index(key) + 1 :] if key in done else []
        done |= dict.fromkeys(later, "") | {key: stage.text}
        partial = self._file.with_suffix(".part")
        partial.write_text(json.dumps(done, indent=2) + "\n")
        partial.replace(self._file)

    def _read(self) -> dict[str, str]:
        if not self._file.exists():
            return {}
        try:
            done = json.loads(self._file.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{self._file} can't be read: {error}; remove it") from error
        if not isinstance(done, dict):
            raise InputError(f"{self._file} is no record of stages: remove it")
        return done


def _key(stage: Stage) -> str:
    return " ".join(path.name for path in stage.makes)


def show(stages: Sequence[Stage], say: Say) -> None:
    """The exact commands of the stages; nothing is run."""
    for stage in stages:
        say(f"# stage {stage.number}: {stage.title}")
        say(stage.text)


def run(stages: Sequence[Stage], folder: Path, say: Say) -> None:
    """Runs the stages. If the last one starts servers, they serve until SIGTERM or SIGINT; servers
    of earlier stages end with the last."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--dir {folder}: no folder can be made: {error.strerror}") from error
    record = StageRecord(folder)
    with _servers() as servers:
        for stage in stages:
            if record.is_done(stage):
                say(f"# stage {stage.number}: {stage.title}: done already")
                continue
            _check(stage)
            say(f"# stage {stage.number}: {stage.title}")
            for path in stage.makes:
                _remove(path)
            for command in stage.commands:
                say(str(command))
                if isinstance(command, ServerCommand):
                    servers.append(_start(command, folder))
                else:
                    _execute(command, stage)
            for server in servers:
                server.wait_ready()
            if stage.makes:
                record.add(stage)
        if stages and stages[-1].serves:
            _stay(servers, say)


def _check(stage: Stage) -> None:
    for need in stage.needs:
        if not need.met():
            raise InputError(f"stage {stage.number} ({stage.title}): {need.otherwise}")


def _remove(path: Path) -> None:
    """What other commands made, or nobody knows which."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _process(command: Command, **options: Any) -> subprocess.Popen[bytes]:
    argv = list(command.argv)
    # This interpreter's, whatever PATH says.
    ours = {"cosyserve": [sys.executable, "-m", "cosyserve"], "python": [sys.executable]}
    argv[:1] = ours.get(argv[0], argv[:1])
    return subprocess.Popen(argv, env=os.environ | command.env, **options)


def _execute(command: Command, stage: Stage) -> None:
    try:
        process = _process(command)
    except OSError as error:
        raise CosyError(f"stage {stage.number}: {command.argv[0]} can't be run: {error}") from error
    try:
        code = process.wait()
    finally:
        if process.poll() is None:  # somebody ends us
            process.terminate()
            process.wait()
    if code:
        raise CosyError(
            f"stage {stage.number} ({stage.title}) failed: {command.argv[0]} ended with {code} and "
            "says why above; then run the same command again: what is done is skipped"
        )


def _start(server: ServerCommand, folder: Path) -> Started:
    logs = folder / "logs"
    logs.mkdir(exist_ok=True)
    if answers(server.ready_url):
        raise InputError(f"{server.ready_url} answers already: end that server, or choose a port")
    log = logs / f"{server.ready_url.split(':')[2].split('/')[0]}.log"
    with log.open("wb") as out:
        process = _process(
            server,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for us, who end it in order
        )
    return Started(server, process, log)


@contextmanager
def _servers() -> Iterator[list[Started]]:
    """Servers that are ended with the block, whatever ends it; a further signal ends them at
    once."""
    servers: list[Started] = []
    seconds = Settings.read().shutdown_seconds + STOP_SECONDS
    with own_handlers():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        try:
            yield servers
        finally:
            for number in ENDING:
                signal.signal(number, lambda *_: _kill(servers))
            # The first may be an LM, which the others ask until their speech is finished.
            for ending in (servers[1:], servers[:1]):
                for started in ending:
                    started.process.terminate()
                for started in ending:
                    try:
                        started.process.wait(seconds)
                    except subprocess.TimeoutExpired:
                        _kill([started])


def _kill(servers: Sequence[Started]) -> None:
    for started in servers:
        if started.process.returncode is None:
            with suppress(ProcessLookupError):  # it has just ended
                os.killpg(started.process.pid, signal.SIGKILL)


def _stay(servers: Sequence[Started], say: Say) -> None:
    """Until one of them ends, or a signal ends us."""
    over = threading.Event()
    for number in ENDING:
        signal.signal(number, lambda *_: over.set())
    say("serving until Ctrl-C")
    while not over.wait(0.5):
        for server in servers:
            server.check("while it served")
