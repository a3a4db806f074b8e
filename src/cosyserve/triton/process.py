"""A tritonserver on this machine: found, started, ready, stopped.

The server comes from PATH (a Triton container) or from the PyPI package `nvidia-pytriton`, which
carries one with the Python backend.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from cosyserve.errors import CosyError, InputError
from cosyserve.triton import drain

READY_SECONDS = 300.0
# A server that dies may do so in the middle of a word.
NO_ANSWER = (OSError, http.client.HTTPException, ValueError)
STOP_SECONDS = 30.0
GRPC = "COSYSERVE_TRITON_GRPC"  # tells a server's models where its gRPC side is
SHARED_MEMORY = Path("/dev/shm")
REGION_PREFIX = "cosyserve_"  # of what a server's models share with it
STUB = "triton_python_backend_stub"
SHORT_NAME = 15  # characters that Linux keeps of a program's name
# Waits for the end of whoever holds its standard input, and clears away what that one left.
GUARD = """read -r _; kill -s KILL -- "-$1"; rm -rf -- "$2" "$3"*"""


@dataclass(frozen=True)
class Ports:
    """Where a server listens."""

    http: int = 8000
    grpc: int = 8001
    metrics: int = 8002

    def __post_init__(self) -> None:
        for name, port in vars(self).items():
            if not 1 <= port <= 65535:
                raise InputError(f"--{name}-port must be 1..65535, got {port}")

    def check_free(self) -> None:
        """Refuses a port that somebody listens on, or that is given twice."""
        with contextlib.ExitStack() as held:
            for name, port in vars(self).items():
                try:
                    held.enter_context(socket.create_server(("", port)))
                except OSError as error:
                    reason = os.strerror(error.errno or 0)
                    raise InputError(
                        f"port {port}: {reason}; choose another with --{name}-port"
                    ) from error

    @classmethod
    def free(cls) -> Ports:
        with contextlib.ExitStack() as held:
            taken = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
            return cls(*(listener.getsockname()[1] for listener in taken))


class TritonProcess:
    """A running tritonserver; as a context it is stopped at the end."""

    def __init__(
        self,
        repository: Path,
        ports: Ports,
        options: Sequence[str] = (),
        *,
        host: str = "",
        loud: bool = False,
    ) -> None:
        """`host`: the address it listens on, every one of the machine's if empty; `loud`: the
        server's log goes where ours does, not to a file."""
        self.ports = ports
        self.was_ready = False
        self.started = time.monotonic()
        if host:
            options = [*options, *(f"--{side}-address={host}" for side in vars(ports))]
        self._http = f"http://{_asked_at(options)}:{ports.http}"
        self._regions = f"{REGION_PREFIX}{secrets.token_hex(8)}_"
        self._scratch = tempfile.TemporaryDirectory(prefix="cosyserve-triton-")
        scratch = Path(self._scratch.name)
        command, env = _command(scratch)
        env[GRPC] = f"localhost:{ports.grpc}"
        env[drain.FILE] = str(scratch / "speaking")
        self._drain = drain.Drain(scratch / "speaking")
        self.log = scratch / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *command,
                    f"--model-repository={repository}",
                    f"--http-port={ports.http}",
                    f"--grpc-port={ports.grpc}",
                    f"--metrics-port={ports.metrics}",
                    f"--backend-config=python,shm-region-prefix-name={self._regions}",
                    "--disable-auto-complete-config",
                    *options,
                ],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr if loud else log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for whoever started us
            )
        regions = str(SHARED_MEMORY / self._regions)
        try:
            self._guard = subprocess.Popen(
                ["sh", "-c", GUARD, "sh", str(self.process.pid), str(scratch), regions],
                stdin=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError:  # a server that nobody guards would keep its ports for ever
            os.killpg(self.process.pid, signal.SIGKILL)
            raise

    def __enter__(self) -> TritonProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def ready(self) -> bool:
        return self.process.poll() is None and answers(f"{self._http}/v2/health/ready")

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        until = time.monotonic() + seconds
        while not self.ready:
            if self.process.poll() is not None:
                raise CosyError(f"tritonserver ended at its start:\n{self.tail()}")
            if time.monotonic() > until:
                raise CosyError(f"tritonserver is not ready after {seconds:.0f} s:\n{self.tail()}")
            time.sleep(0.1)

    def ready_once(self) -> bool:
        """Whether the server is or was ready."""
        self.was_ready = self.was_ready or self.ready
        return self.was_ready

    def stubs(self) -> dict[str, int]:
        """The living Python processes of the server's models, by instance: `MODEL/1/…_0_0`."""
        pids = {}
        for pid, _, state in self._children():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if state != "Z" and words[0].endswith(STUB.encode()):
                    version = Path(os.fsdecode(words[1])).parent
                    instance = os.fsdecode(words[-3])  # then what it runs on, and an empty word
                    pids[f"{version.parent.name}/{version.name}/{instance}"] = pid
        return pids

    def has_dead_stub(self) -> bool:
        """Whether a Python process has died and the server does not know yet."""
        name = STUB[:SHORT_NAME]
        return any((program, state) == (name, "Z") for _, program, state in self._children())

    def _children(self) -> Iterator[tuple[int, str, str]]:
        """The server's processes: their ids, their programs and their states."""
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                # "pid (program) state parent …": the program may hold anything, brackets too
                before, _, after = (folder / "stat").read_text().rpartition(")")
                state, parent = after.split()[:2]
                if int(parent) == self.process.pid:
                    yield int(folder.name), before.partition("(")[2], state

    def serves(self, model: str) -> bool:
        """Whether the server takes requests for a model, as far as it knows."""
        request = urllib.request.Request(f"{self._http}/v2/repository/index", b"{}")
        try:
            with urllib.request.urlopen(request, timeout=2) as response:
                found = json.load(response)
        except NO_ANSWER:
            return True  # whoever is not sure should not leave it at that
        return any(entry["name"] == model and entry.get("state") == "READY" for entry in found)

    def kill_processes(self) -> None:
        """Ends the server and all of its processes without a word to anybody."""
        with contextlib.suppress(ProcessLookupError):  # one that hangs outlives even the server
            os.killpg(self.process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """Ends them so, and clears away what they left."""
        self.kill_processes()
        self._guard.kill()
        with self._guard:  # closes its pipe
            self.process.wait()
        self._drain.close()
        self._scratch.cleanup()
        for region in SHARED_MEMORY.glob(f"{self._regions}*"):  # of processes that were killed
            region.unlink(missing_ok=True)

    def tail(self, lines: int = 30) -> str:
        """The last lines of the server's log."""
        if not self.log.exists():  # it was killed
            return ""
        return "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-lines:])

    def drain(self, seconds: float) -> None:
        """Has the server take no more speech, and waits at most so long for what is being made."""
        self._drain.begin()
        until = time.monotonic() + seconds
        while self.process.poll() is None and not self._drain.done and time.monotonic() < until:
            time.sleep(0.05)

    def stop(self) -> None:
        """Ends the server and all of its processes. Speech that is being made fails: its model can
        ask no other one from now on."""
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_SECONDS)
        self.kill()


def _asked_at(options: Sequence[str]) -> str:
    """The address where a server with these options can be asked over HTTP from here."""
    words = [word for option in options for word in option.split("=", 1)]
    given = [value for name, value in pairwise(words) if name == "--http-address"]
    return given[-1] if given and given[-1] != "0.0.0.0" else "127.0.0.1"


def answers(url: str) -> bool:
    """Whether a server answers a URL with success."""
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except NO_ANSWER:
        return False


def find_tritonserver() -> str:
    """The program that a server here would be."""
    installed = shutil.which("tritonserver")
    return installed or str(_packaged() / "bin" / "tritonserver")


def _command(scratch: Path) -> tuple[list[str], dict[str, str]]:
    """The command that starts a tritonserver, and its environment."""
    # The stub looks for `python3` on PATH: with ours first it finds this environment's packages.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    # Its Python processes read words with numpy, whose threads would wait for torch's cores.
    env = {"OPENBLAS_NUM_THREADS": "1"} | os.environ | {"PATH": path}
    if installed := shutil.which("tritonserver"):
        return [installed], env
    root = _packaged()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = root / "python_backend_stubs" / version / "triton_python_backend_stub"
    if not stub.exists():
        raise CosyError(
            f"nvidia-pytriton has no Triton stub for Python {version}: use 3.11 or 3.12"
        )
    backend = scratch / "backends" / "python"
    shutil.copytree(root / "backends" / "python", backend)
    shutil.copy(stub, backend)
    # The stub must load the library of this very interpreter, not another one's of its version.
    libraries = (sysconfig.get_config_var("LIBDIR"), str(root.parents[1] / "nvidia_pytriton.libs"))
    env["LD_LIBRARY_PATH"] = os.pathsep.join(
        filter(None, (*libraries, os.environ.get("LD_LIBRARY_PATH")))
    )
    server = str(root / "bin" / "tritonserver")
    return [server, f"--backend-directory={backend.parent}", "--allow-gpu-metrics=false"], env


def _packaged() -> Path:
    """The folder of the tritonserver that a PyPI package carries."""
    package = importlib.util.find_spec("pytriton")
    if package is None or package.origin is None:
        raise CosyError(
            "no tritonserver here: run in a Triton container, or pip install 'cosyserve[triton]'"
        )
    return Path(package.origin).parent / "tritonserver"


def model_folders(repository: Path) -> list[Path]:
    """Of the models in a repository, by name."""
    try:
        return sorted(path for path in repository.iterdir() if path.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{repository}: no such folder") from None
    except OSError as error:
        raise InputError(f"{repository} can't be read: {error.strerror}") from error
