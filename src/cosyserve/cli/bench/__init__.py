"""`cosyserve bench`: measure a server, several Triton servers, or the models in this process."""

from __future__ import annotations

import typer

from cosyserve.cli.bench.live import live
from cosyserve.cli.bench.load import load
from cosyserve.cli.bench.offline import offline
from cosyserve.cli.bench.tokens import tokens
from cosyserve.cli.client import CacheCommand, client_grpc

bench = typer.Typer(no_args_is_help=True, help="Measure servers and models.")
bench.command("load")(load)
bench.command("live")(live)
bench.command("triton", cls=CacheCommand)(client_grpc)
bench.command("offline")(offline)
bench.command("tokens")(tokens)
