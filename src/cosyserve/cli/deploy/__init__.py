"""`cosyserve deploy`: files for other servers, and the stages from a checkpoint to a service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cosyserve.cli.common import note
from cosyserve.cli.deploy.containers import KEYS, compose, front, helm, kserve
from cosyserve.cli.deploy.engine import engine
from cosyserve.cli.deploy.plan import plan
from cosyserve.cli.deploy.run import download, run
from cosyserve.cli.options import setting
from cosyserve.deploy.triton.settings import TritonSettings
from cosyserve.errors import InputError
from cosyserve.settings import Settings

deploy = typer.Typer(no_args_is_help=True, help="Deploy the models on other servers.")
deploy.command("run")(run)
deploy.command("download")(download)
deploy.command("plan")(plan)
for verb in (compose, helm, kserve):
    deploy.command(epilog=KEYS)(verb)
deploy.command("front")(front)
deploy.add_typer(engine, name="engine")


@deploy.command(epilog=f"Keys of --set, with their defaults:\n\n{TritonSettings.help_text()}")
def triton(
    model: Annotated[
        str | None,
        setting(
            *("model", "--model", "-m"),
            help="A folder of `cosyserve prepare`, `nano` (the shipped voice), or `test`.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The folder of the repository to write.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting of the repository, of those below. The option may be repeated.",
        ),
    ] = None,
    check: Annotated[
        Path | None, typer.Option(help="A repository to examine, instead of writing one.")
    ] = None,
) -> None:
    """Write a Triton model repository, or examine one."""
    if (out is None) == (check is None):
        raise InputError("give either --out FOLDER to write, or --check FOLDER to examine")
    if check is not None:
        from cosyserve.deploy.triton.check import check as examine

        complaints = examine(check)
        for complaint in complaints:
            note.print(complaint, soft_wrap=True)
        if complaints:
            raise typer.Exit(1)
        note.print(f"{check} is in order")
        return
    from cosyserve.deploy.triton.repository import render

    assert out
    settings = TritonSettings.of(set_ or (), model_dir=Settings.read(model=model).model)
    names = render(settings, out, source=model or settings.model_dir)
    note.print(f"written: {out} ({', '.join(names)})", soft_wrap=True)


@deploy.command()
def start(
    repository: Annotated[Path, typer.Argument(help="A folder of `cosyserve deploy triton`.")],
    options: Annotated[
        list[str] | None, typer.Argument(help="Options of tritonserver, behind a --.")
    ] = None,
    http_port: Annotated[int, typer.Option(help="The port for HTTP.")] = 8000,
    grpc_port: Annotated[int, typer.Option(help="The port for gRPC.")] = 8001,
    metrics_port: Annotated[int, typer.Option(help="The port for metrics.")] = 8002,
) -> None:
    """Start a tritonserver on a repository, and anew whenever one of its processes dies."""
    from cosyserve.triton.keeper import keep
    from cosyserve.triton.process import Ports

    keep(repository, Ports(http_port, grpc_port, metrics_port), options or ())
