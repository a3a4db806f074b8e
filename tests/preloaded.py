"""`cosyserve` and `python` without the seconds that torch takes to import.

A process that has imported it forks for every command; programs of those names lend it their
arguments, folder, environment and files, and end as the command does. A command dies with its
program, and what it starts by `sys.executable` is forked, too.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAM = '#!/bin/sh\nexec "{python}" -IS "{file}" run "{socket}" {name} "$@"\n'
LONGEST_TASK = 1 << 20  # bytes
MOST_FILES = 16
FREE_NUMBERS = 100  # of files, from here on
# Those that need torch; others, which may have limits to keep, are started as ever.
MODULES = {"cosyserve", "cosyserve.engine.workers.worker"}


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
    if name == "python" and words[0] == "-m" and words[1] not in MODULES:
        os.execv(sys.executable, [sys.executable, *words])
    files = _inherited()
    task = {"name": name, "words": words, "folder": os.getcwd(), "environment": dict(os.environ)}
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(address)
        body = json.dumps(task | {"files": files}).encode()
        socket.send_fds(link, [b"%d\n" % len(body)], files)
        link.sendall(body)
        answers = link.makefile()
        pid = int(answers.readline())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: os.kill(pid, number))
        status = int(answers.readline())
    return 128 - status if status < 0 else status


def _inherited() -> list[int]:
    """The files that this process was given, standard ones among them."""
    numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    there = [n for n in numbers if os.path.exists(f"/proc/self/fd/{n}")]
    return sorted(number for number in there if os.get_inheritable(number))


def serve(address: str) -> None:
    import torch

    import cosyserve.cli
    import cosyserve.engine.in_process
    import cosyserve.engine.tts
    import cosyserve.engine.workers.worker
    import cosyserve.gateway.serve  # noqa: F401

    torch.set_num_threads(1)
    assert len(os.listdir("/proc/self/task")) == 1, "a process that has threads can't be forked"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.freeze()
    os.write(1, b"ready")
    os.dup2(2, 1)  # ends what the other side reads
    command = _next_command(listener)
    sys.executable = str(Path(address).with_name("python"))
    _end(command)


def _next_command(listener: socket.socket) -> Callable[[], object]:
    """Returns in a fork for each command: then this process is the command's."""
    while True:
        link, _ = listener.accept()
        if os.fork():
            link.close()
            continue
        listener.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        head, files, _, _ = socket.recv_fds(link, 32, MOST_FILES)
        size, _, body = head.partition(b"\n")
        while len(body) < int(size):
            more = link.recv(LONGEST_TASK)
            if not more:  # its program was killed
                os._exit(1)
            body += more
        if pid := os.fork():
            for file in files:
                os.close(file)
            link.sendall(b"%d\n" % pid)
            _watch(link, pid)
        link.close()
        return _command(json.loads(body), files)


def _watch(link: socket.socket, pid: int) -> None:
    """Tells how the command ended, or ends it with its program."""
    ended = os.pidfd_open(pid)
    ready, _, _ = select.select([ended, link], [], [])
    if ended not in ready:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if ended in ready:
        link.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _end(command: Callable[[], object]) -> None:
    """Runs the command and ends as an interpreter does, but for taking all modules apart, which
    takes longer than most commands."""
    status: object = 0
    try:
        command()
    except SystemExit as ended:
        status = ended.code or 0
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if not isinstance(status, int):
        print(status, file=sys.stderr)
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _command(task: dict[str, object], files: list[int]) -> Callable[[], object]:
    environment, words, numbers = task["environment"], task["words"], task["files"]
    assert isinstance(environment, dict)
    assert isinstance(words, list)
    assert isinstance(numbers, list)
    held = [fcntl.fcntl(file, fcntl.F_DUPFD, FREE_NUMBERS) for file in files]
    for file in files:
        os.close(file)
    for file, number in zip(held, numbers, strict=True):
        os.dup2(file, number)
        os.close(file)
    os.chdir(str(task["folder"]))
    os.environ.clear()
    os.environ.update(environment)
    sys.path[0] = ""
    if task["name"] == "cosyserve":
        from cosyserve.cli import main

        sys.argv = ["cosyserve", *words]
        return main
    if words[0] == "-m":
        sys.argv = words[1:]
        sys.modules.pop(words[1], None)  # it is run, not imported
        return lambda: runpy.run_module(words[1], run_name="__main__", alter_sys=True)
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
