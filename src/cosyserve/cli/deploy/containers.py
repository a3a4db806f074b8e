"""`cosyserve deploy compose`, `helm`, `kserve` and `front`: files for containers and what is
before them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cosyserve.cli.common import note
from cosyserve.deploy.containers.stack import Stack
from cosyserve.errors import InputError

KEYS = f"Keys of --set, with their defaults:\n\n{Stack.help_text()}"
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A choice of those below. The option may be repeated.",
    ),
]
OutOption = Annotated[
    Path | None, typer.Option(help="The file to write; without it, the text is printed.")
]


def compose(set_: SetOption = None, out: OutOption = None) -> None:
    """Write a Compose file: one server, Triton servers, or LM and token2wav apart."""
    from cosyserve.deploy.containers.compose import compose_file

    _write(compose_file(Stack.of(set_ or ())), out)


def helm(
    out: Annotated[Path, typer.Option(help="The folder of the chart to write.")],
    set_: SetOption = None,
) -> None:
    """Write a Helm chart with the values of these choices."""
    from cosyserve.deploy.containers.helm import write_chart

    write_chart(Stack.of(set_ or ()), out)
    note.print(f"written: {out}; install it with `helm install NAME {out}`", soft_wrap=True)


def kserve(set_: SetOption = None, out: OutOption = None) -> None:
    """Write an InferenceService of KServe."""
    from cosyserve.deploy.containers.kserve import inference_service

    _write(inference_service(Stack.of(set_ or ())), out)


class FrontName(StrEnum):
    NGINX = "nginx"
    ENVOY = "envoy"


def front(
    kind: Annotated[FrontName, typer.Argument(help="The program: nginx or envoy.")],
    server: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:PORT", help="A gateway. The option may be repeated."),
    ] = None,
    triton: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT", help="The gRPC side of a Triton server. It may be repeated."
        ),
    ] = None,
    listen_port: Annotated[
        int, typer.Option(min=1, max=65535, help="The port for clients of the gateways.")
    ] = 8080,
    grpc_port: Annotated[
        int, typer.Option(min=1, max=65535, help="The port for clients of Triton.")
    ] = 8001,
    out: OutOption = None,
) -> None:
    """Write the file of an nginx or an Envoy before several servers."""
    from cosyserve.deploy.containers import fronts

    chosen = fronts.Front(tuple(server or ()), tuple(triton or ()), listen_port, grpc_port)
    _write(fronts.nginx(chosen) if kind is FrontName.NGINX else fronts.envoy(chosen), out)


def _write(text: str, out: Path | None) -> None:
    if out is None:
        typer.echo(text, nl=False)
        return
    try:
        file = out.open("x", encoding="utf-8")
        try:
            with file:
                file.write(text)
        except OSError:
            out.unlink()  # else the next try would find it
            raise
    except FileExistsError:
        raise InputError(f"{out} exists already: remove it or choose another --out") from None
    except OSError as error:
        raise InputError(f"{out}: can't be written: {error.strerror}") from error
    note.print(f"written: {out}", soft_wrap=True)
