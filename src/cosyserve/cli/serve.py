"""`cosyserve serve`: workers and a gateway.

Knows no route and no model.
"""

from __future__ import annotations

from typing import Annotated

import typer

from cosyserve.cli.common import DtypeOption, ModelOption
from cosyserve.settings import Settings


def serve(
    model: ModelOption = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="0 takes a free one.")] = None,
    device: Annotated[
        list[str] | None, typer.Option(help="One worker per device; may be repeated.")
    ] = None,
    dtype: DtypeOption = None,
) -> None:
    """Serve speech over HTTP, as OpenAI's API does."""
    import asyncio

    import uvloop

    from cosyserve.engine.remote import WorkerEngine, WorkerOptions, WorkerPool
    from cosyserve.gateway.limits import Limits
    from cosyserve.gateway.serve import serve as serve_http
    from cosyserve.voices.store import FolderStore

    settings = Settings()
    options = [
        WorkerOptions(
            model or settings.model,
            place,
            dtype or settings.dtype,
            settings.threads,
            settings.slots,
            settings.waiting,
        )
        for place in device or [settings.device]
    ]

    async def run() -> None:
        pool = WorkerPool([WorkerEngine(option) for option in options])
        where = host or settings.host, settings.port if port is None else port
        try:
            await pool.start()
            await serve_http(pool, FolderStore(settings.voices), *where, Limits())
        finally:
            await pool.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
