"""`cosyserve serve`: workers, or Triton servers, and a gateway.

Knows no route and no model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cosyserve.cli.common import DtypeOption, ModelOption, StoreOption, note, stored_voices
from cosyserve.errors import InputError
from cosyserve.settings import Settings

if TYPE_CHECKING:
    from cosyserve.triton.engine import TritonEngine

LOOPBACK = ("127.", "::1", "localhost")


def serve(
    model: ModelOption = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="0 takes a free one.")] = None,
    api_key: Annotated[
        list[str] | None,
        typer.Option(help="A key that clients must send; may be repeated. [COSYSERVE_API_KEYS]"),
    ] = None,
    voice_store: StoreOption = None,
    device: Annotated[
        list[str] | None, typer.Option(help="One worker per device; may be repeated.")
    ] = None,
    lm_device: Annotated[
        str | None, typer.Option(help="Of the LM, where token2wav has another device.")
    ] = None,
    token2wav_device: Annotated[
        str | None, typer.Option(help="Of flow and vocoder, in a process of their own.")
    ] = None,
    dtype: DtypeOption = None,
    profile: Annotated[
        str | None, typer.Option(help="What a GPU is tuned for: latency or throughput.")
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="triton://HOST:8001[,HOST:8001…]: Triton servers instead of workers here. "
            "[COSYSERVE_ENGINE]"
        ),
    ] = None,
    triton: Annotated[
        bool, typer.Option("--triton", help="Speak through a tritonserver, started here.")
    ] = False,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="With --triton: as of `deploy triton`.")
    ] = None,
) -> None:
    """Serve speech over HTTP, as OpenAI's API does."""
    import asyncio
    import contextlib
    import os

    import uvloop

    from cosyserve.engine.workers.client import WorkerEngine, WorkerOptions
    from cosyserve.engine.workers.pool import WorkerPool
    from cosyserve.gateway.limits import Limits
    from cosyserve.gateway.serve import serve as serve_http

    settings = Settings.read()
    address = host or settings.host
    keys = api_key or settings.keys
    if not keys and not address.startswith(LOOPBACK):
        note.print(
            f"[yellow]anybody who reaches {address} may use this server: set --api-key[/yellow]"
        )
    store = stored_voices(voice_store)
    lm_place = lm_device or ("" if device else settings.lm_device)
    token2wav_place = token2wav_device or ("" if device else settings.token2wav_device)
    if bool(lm_place) != bool(token2wav_place) or (lm_place and device):
        raise InputError("give --lm-device and --token2wav-device together, and no --device")
    options = [
        WorkerOptions(
            model or settings.model,
            place,
            dtype or settings.dtype,
            settings.threads,
            profile or settings.profile,
            settings.slots,
            settings.waiting,
            settings.max_wait_seconds,
            settings.voice_cache_bytes,
            token2wav_place,
        )
        for place in device or [lm_place or settings.device]
    ]

    if profile not in (None, "latency", "throughput"):
        raise InputError(f"--profile must be latency or throughput, got {profile!r}")
    elsewhere = engine or settings.engine
    if elsewhere and (model or device or lm_device or dtype or triton):
        raise InputError(
            "--model, devices, --dtype and --triton are for this machine: leave out --engine"
        )
    if set_ and not triton:
        raise InputError("--set is for --triton")

    def speaking(address: str) -> WorkerPool | TritonEngine:
        if not address:
            return WorkerPool([WorkerEngine(option) for option in options])
        # Our children are other programs, no forks that go on with gRPC.
        os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
        from cosyserve.triton.engine import TritonEngine

        return TritonEngine.of(address)

    async def run(triton_address: str) -> None:
        pool = speaking(triton_address)
        where = address, settings.port if port is None else port
        try:
            await pool.start()
            await serve_http(pool, store, *where, Limits.of(settings), keys)
        finally:
            await pool.close()

    with contextlib.ExitStack() as stack:
        if triton:
            from cosyserve.deploy.triton_here import triton_here
            from cosyserve.deploy.triton_settings import TritonSettings

            chosen = TritonSettings.of(
                [*(f"device={place}" for place in device or ()), *(set_ or ())],
                model_dir=model or settings.model,
                dtype=dtype or settings.dtype,
                voices=voice_store or settings.voices,
            )
            elsewhere = stack.enter_context(triton_here(chosen))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run(elsewhere))
