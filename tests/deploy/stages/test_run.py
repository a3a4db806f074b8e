"""Stages are run in order, once, and say what is missing; their servers end with them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cosyserve.deploy.stages.run import run, show
from cosyserve.deploy.stages.stage import Command, Need, ServerCommand, Stage, path_needed
from cosyserve.errors import CosyError, InputError
from cosyserve.triton.process import Ports, answers
from tests.waiting import wait_until

pytestmark = pytest.mark.server


def python(code: str, *arguments: object) -> Command:
    return Command(("python", "-c", code, *map(str, arguments)))


def written(path: Path, text: str = "") -> Command:
    """Appends to a file, so that a second run shows."""
    return python("import sys; open(sys.argv[1], 'a').write(sys.argv[2])", path, text)


def web_server(folder: Path, port: int) -> ServerCommand:
    argv = ("python", "-m", "http.server", str(port), "--bind", "127.0.0.1")
    return ServerCommand((*argv, "--directory", str(folder)), ready_url=f"http://localhost:{port}/")


RELUCTANT = """
import signal, sys, time
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

def tell(word):
    with (Path(sys.argv[3]) / "told").open("a") as told:
        told.write(f"{word} ")

def end(*_):
    tell(sys.argv[2])
    time.sleep(float(sys.argv[2]))
    tell(f"over {sys.argv[2]}")
    sys.exit()

signal.signal(signal.SIGTERM, end)
HTTPServer(("127.0.0.1", int(sys.argv[1])), SimpleHTTPRequestHandler).serve_forever()
"""


def reluctant_server(folder: Path, seconds: float) -> ServerCommand:
    """It takes so long to end once it is told to, and notes both in the file `told`."""
    port = Ports.free().http
    argv = ("python", "-c", RELUCTANT, str(port), str(seconds), str(folder))
    return ServerCommand(argv, ready_url=f"http://localhost:{port}/")


def said(stages: list[Stage], folder: Path) -> list[str]:
    lines: list[str] = []
    run(stages, folder, lines.append)
    return lines


def test_what_is_done_is_skipped_and_done_again_when_its_commands_change(tmp_path: Path) -> None:
    made = tmp_path / "made"
    first = Stage(0, "first", (written(made, "a"),), makes=(made,))
    assert said([first], tmp_path)[0] == "# stage 0: first"
    assert said([first], tmp_path) == ["# stage 0: first: done already"]
    assert made.read_text() == "a"
    changed = Stage(0, "first", (written(made, "b"),), makes=(made,))
    said([changed], tmp_path)
    assert made.read_text() == "b"
    made.unlink()
    said([changed], tmp_path)
    assert made.read_text() == "b"
    assert json.loads((tmp_path / "stages.json").read_text()) == {"made": changed.text}


def test_what_is_made_of_something_that_changed_is_made_again(tmp_path: Path) -> None:
    model, repository = tmp_path / "model", tmp_path / "repository"
    render = Stage(2, "render", (written(repository),), makes=(repository,))
    for options, line in (("a", "render"), ("a", "render: done already"), ("b", "render")):
        said([Stage(1, "engine", (written(model, options),), makes=(model,))], tmp_path)
        assert said([render], tmp_path)[0] == f"# stage 2: {line}"


def test_what_somebody_put_there_is_left_as_it_is(tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.write_text("by hand")
    assert said([Stage(0, "first", (written(made),), makes=(made,))], tmp_path) == [
        "# stage 0: first: done already"
    ]
    assert made.read_text() == "by hand"


def test_a_failure_ends_the_run_and_is_tried_again(tmp_path: Path) -> None:
    made, mended = tmp_path / "made", tmp_path / "mended"
    code = "import os, sys; sys.exit(0 if os.path.exists(sys.argv[1]) else 3)"
    stages = [
        Stage(1, "first", (written(made, "a"),), makes=(made,)),
        Stage(2, "second", (python(code, mended),), makes=(mended,)),
    ]
    with pytest.raises(CosyError, match=r"stage 2 \(second\) failed: python ended with 3"):
        said(stages, tmp_path)
    code = "import sys; open(sys.argv[1], 'w').close()"
    stages[1] = Stage(2, "second", (python(code, mended),), makes=(mended,))
    assert said(stages, tmp_path)[0] == "# stage 1: first: done already"
    assert made.read_text() == "a"


def test_what_is_missing_is_said_before_anything_runs(tmp_path: Path) -> None:
    made = tmp_path / "made"
    need = path_needed(tmp_path / "model", "run --stage 0 first")
    stage = Stage(1, "engine", (written(made),), (Need(lambda: True, "no"), need), (made,))
    with pytest.raises(InputError, match=r"stage 1 \(engine\): .*model is not there: run"):
        said([stage], tmp_path)
    assert not made.exists()
    with pytest.raises(CosyError, match=r"no-such-program can't be run"):
        said([Stage(2, "other", (Command(("no-such-program",)),))], tmp_path)


def test_a_folder_that_can_not_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InputError, match=f"--dir {folder}: no folder can be made"):
            said([], folder)


@pytest.mark.parametrize("content", ["{", "[]", '"text"'])
def test_a_broken_record_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "stages.json").write_text(content)
    made = tmp_path / "made"
    made.touch()
    with pytest.raises(InputError, match=r"stages\.json .*remove it"):
        said([Stage(0, "first", (), makes=(made,))], tmp_path)


def test_servers_serve_later_stages_and_end_with_the_last(tmp_path: Path) -> None:
    port = Ports.free().http
    server = web_server(tmp_path, port)
    asked = tmp_path / "asked"
    code = "import sys; from urllib.request import *; urlretrieve(sys.argv[1], sys.argv[2])"
    ask = python(code, server.ready_url, asked)
    said([Stage(3, "start", (server,)), Stage(4, "ask", (ask,))], tmp_path)
    assert b"Directory listing" in asked.read_bytes()
    assert not answers(server.ready_url)
    assert (tmp_path / "logs" / f"{port}.log").exists()


def test_a_server_that_does_not_start_is_told(tmp_path: Path) -> None:
    broken = ServerCommand(
        ("python", "-c", "exit(1)"), ready_url=f"http://localhost:{Ports.free().http}/"
    )
    with pytest.raises(CosyError, match=r"ended at its start: .*/logs/\d+\.log says why"):
        said([Stage(3, "start", (broken,))], tmp_path)


def test_a_taken_port_is_told(tmp_path: Path) -> None:
    server = web_server(tmp_path, Ports.free().http)
    with pytest.raises(InputError, match="answers already"):
        said([Stage(3, "start", (server,)), Stage(7, "start", (server,))], tmp_path)
    assert not answers(server.ready_url)


def test_the_first_server_ends_last(tmp_path: Path) -> None:
    """It may be an LM, which the others ask until they are done."""
    first, second = (reluctant_server(tmp_path, seconds) for seconds in (0.0, 0.5))
    said([Stage(3, "start", (first, second)), Stage(4, "nothing", ())], tmp_path)
    assert (tmp_path / "told").read_text() == "0.5 over 0.5 0.0 over 0.0 "


def serving(folder: Path, server: str) -> subprocess.Popen[str]:
    """A process that runs a stage with one of the servers here."""
    program = (
        "import sys; from pathlib import Path; from cosyserve.deploy.stages.run import run; "
        "from tests.deploy.stages.test_run import *; folder = Path(sys.argv[1]); "
        f"run([Stage(3, 'start', ({server},))], folder, print)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(folder)],
        cwd=Path(__file__).parents[3],
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout
    lines = iter(child.stdout.readline, "")
    assert any("serving until" in line for line in lines)
    return child


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_servers(tmp_path: Path, number: int) -> None:
    port = Ports.free().http
    child = serving(tmp_path, f"web_server(folder, {port})")
    assert answers(f"http://localhost:{port}/")
    child.send_signal(number)
    assert child.wait(30) == 0
    wait_until(lambda: not answers(f"http://localhost:{port}/"))


def test_a_second_signal_ends_them_at_once(tmp_path: Path) -> None:
    child = serving(tmp_path, "reluctant_server(folder, 1000.0)")
    child.send_signal(signal.SIGTERM)
    told = tmp_path / "told"
    wait_until(lambda: told.exists() and told.read_text() == "1000.0 ")
    child.send_signal(signal.SIGTERM)
    assert child.wait(30) == 0


def test_a_dry_run_prints_what_a_shell_takes(tmp_path: Path) -> None:
    lines: list[str] = []
    made = tmp_path / "it's made"
    command = Command(("touch", str(made)), {"WORDS": "two words"})
    show([Stage(0, "touch", (command,), (Need(lambda: False, ""),), (made,))], lines.append)
    assert lines[0] == "# stage 0: touch"
    subprocess.run(["bash", "-euc", lines[1]], check=True)
    assert made.exists()
