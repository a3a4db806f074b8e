"""`cosyserve` and `python` without the seconds that torch takes to import.

A process that has imported it forks for every command; programs of those names lend it their
arguments, folder, environment and files, and end as the command does.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAM = '#!/bin/sh\nexec "{python}" -IS "{file}" run "{socket}" {name} "$@"\n'
STANDARD_FILES = 0, 1, 2
LONGEST_TASK = 1 << 20  # bytes


@contextmanager
def programs(folder: Path) -> Iterator[Path]:
    """A folder for the front of PATH."""
    address, file = folder / "socket", Path(__file__)
    for name in ("cosyserve", "python"):
        program = folder / name
        words = {"python": sys.executable, "file": file, "socket": address, "name": name}
        program.write_text(PROGRAM.format(**words))
        program.chmod(0o755)
    one = {"OMP_NUM_THREADS": "1"}  # a process that has threads can't be forked
    process = subprocess.Popen(
        [sys.executable, str(file), "serve", str(address)],
        env=os.environ | one,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout
    try:
        assert process.stdout.read() == b"ready"
        yield folder
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def run(address: str, name: str, words: list[str]) -> int:
    """Asks for a command and waits for its end; signals reach it."""
    task = {"name": name, "words": words, "folder": os.getcwd(), "environment": dict(os.environ)}
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(address)
        body = json.dumps(task).encode()
        socket.send_fds(link, [b"%d\n" % len(body)], STANDARD_FILES)
        link.sendall(body)
        answers = link.makefile()
        pid = int(answers.readline())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: os.kill(pid, number))
        status = int(answers.readline())
    return 128 - status if status < 0 else status


def serve(address: str) -> None:
    import torch

    import cosyserve.cli
    import cosyserve.engine.in_process
    import cosyserve.engine.tts  # noqa: F401

    torch.set_num_threads(1)
    assert len(os.listdir("/proc/self/task")) == 1, "a process that has threads can't be forked"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.write(1, b"ready")
    os.dup2(2, 1)  # ends what the other side reads
    command = _next_command(listener)
    command()


def _next_command(listener: socket.socket) -> Callable[[], object]:
    """Returns in a fork for each command: then this process is the command's."""
    while True:
        link, _ = listener.accept()
        if os.fork():
            link.close()
            continue
        listener.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        head, files, _, _ = socket.recv_fds(link, 32, len(STANDARD_FILES))
        size, _, body = head.partition(b"\n")
        while len(body) < int(size):
            body += link.recv(LONGEST_TASK)
        if pid := os.fork():
            link.sendall(b"%d\n" % pid)
            _, status = os.waitpid(pid, 0)
            link.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
            os._exit(0)
        link.close()
        return _command(json.loads(body), files)


def _command(task: dict[str, object], files: list[int]) -> Callable[[], object]:
    for file, number in zip(files, STANDARD_FILES, strict=True):
        os.dup2(file, number)
        os.close(file)
    os.chdir(str(task["folder"]))
    environment, words = task["environment"], task["words"]
    assert isinstance(environment, dict)
    assert isinstance(words, list)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[0] = ""
    if task["name"] == "cosyserve":
        from cosyserve.cli import main

        sys.argv = ["cosyserve", *words]
        return main
    sys.argv = words
    if words[0] != "-c":
        return lambda: runpy.run_path(words[0], run_name="__main__")
    code = words.pop(1)
    return lambda: exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    verb, address, *rest = sys.argv[1:]
    if verb == "serve":
        serve(address)
    else:
        sys.exit(run(address, rest[0], rest[1:]))
