"""The command `cosyserve`: options in, calls into the rooms, words for people out.

Rooms are imported by the verb that needs them, so that `--help` is quick. Every error of ours is
one line and exit code 2.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Annotated

import typer
from rich.text import Text

from cosyserve.cli.bench import bench
from cosyserve.cli.client import client
from cosyserve.cli.common import note
from cosyserve.cli.deploy import deploy
from cosyserve.cli.doctor import doctor
from cosyserve.cli.prepare import prepare
from cosyserve.cli.say import say
from cosyserve.cli.serve import serve
from cosyserve.cli.voice import voices
from cosyserve.cli.watermark import watermark
from cosyserve.errors import CosyError
from cosyserve.version import __version__

EXTRAS = {  # packages that not everybody needs, and what brings them along
    **dict.fromkeys(
        ("fastapi", "msgspec", "prometheus_client", "redis", "uvicorn", "uvloop"), "server"
    ),
    **dict.fromkeys(("google", "grpc", "tritonclient"), "triton"),
    **dict.fromkeys(("httpx", "matplotlib"), "bench"),
    "wyoming": "wyoming",
}

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Speech from text, with the CosyVoice2 models.",
)
for verb in (say, serve, prepare, doctor, watermark):
    app.command()(verb)
app.add_typer(voices, name="voice")
app.add_typer(bench, name="bench")
app.add_typer(client, name="client")
app.add_typer(deploy, name="deploy")


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if show:
        print(f"cosyserve {__version__}")
        raise typer.Exit


def main() -> None:
    try:
        try:
            app()
        finally:
            print(end="", flush=True)  # at its end Python would print a traceback
    except CosyError as error:
        _tell(str(error))
        raise SystemExit(2) from None
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        command = f"pip install 'cosyserve[{EXTRAS[package]}]'"
        _tell(f"{package} is not installed: {command}")
        raise SystemExit(2) from None
    except BrokenPipeError:  # whoever read our output has left
        _forget_output()
        raise SystemExit(1) from None
    except OSError as error:
        if error.filename:  # a file or a folder that is not as a command found it, or wants it
            _tell(f"{error.filename}: {error.strerror}")
            raise SystemExit(2) from None
        if error.errno not in NO_ROOM:
            raise
        _tell(f"standard output can't be written: {error.strerror}")
        _forget_output()
        raise SystemExit(1) from None


def _forget_output() -> None:
    """What was printed and can't be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _tell(error: str) -> None:
    note.print(Text.assemble(("error:", "red"), " ", error), soft_wrap=True)
