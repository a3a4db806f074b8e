"""The server as a whole: an engine is chosen, started, and served over HTTP.

It imports no torch: models are loaded by worker processes, here or on the nodes of a Ray cluster,
or by a Triton server.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import uvloop

from cosyserve.backends.llm_server import LLMServer
from cosyserve.choices import LLMSampling
from cosyserve.engine.workers.client import WorkerEngine
from cosyserve.engine.workers.options import WorkerOptions
from cosyserve.engine.workers.pool import WorkerPool
from cosyserve.errors import InputError
from cosyserve.gateway.doors import Doors
from cosyserve.gateway.key_file import KeyFile
from cosyserve.gateway.keys import KeyRing
from cosyserve.gateway.limits import Limits
from cosyserve.gateway.models import Models
from cosyserve.gateway.policy import Policy
from cosyserve.gateway.serve import configure_logging
from cosyserve.gateway.serve import serve as serve_http
from cosyserve.gateway.transport.listening import Transport, check_free
from cosyserve.settings import Settings, option_name
from cosyserve.voices.store import VoiceStore, open_store

if TYPE_CHECKING:
    from cosyserve.gateway.telemetry.spans import Spans
    from cosyserve.ray.engine import RayEngine
    from cosyserve.triton.engine import TritonEngine

RAY = "ray"
LOOPBACK = ("127.", "::1", "localhost")

log = logging.getLogger(__name__)


def serve(
    settings: Settings,
    *,
    devices: Sequence[str] = (),
    keys: Sequence[str] = (),
    triton: bool = False,
    triton_settings: Sequence[str] = (),
) -> None:
    """Serves until SIGTERM or SIGINT.

    `devices` and `keys` go before those of the settings; each device has a worker. With `triton`,
    a tritonserver computes that is started here, with `triton_settings` of the form key=value.
    """
    configure_logging()
    # Our children are other programs, no forks that go on with gRPC.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    doors = Doors.of(settings)
    doors.import_rooms()
    if not all(map(str.strip, keys)):
        raise InputError("--api-key is empty: give a key, or leave it out")
    transport = Transport.of(settings)
    key_file = KeyFile(settings.api_keys_file) if settings.api_keys_file else None
    ring = KeyRing(keys or settings.keys, key_file)
    if not ring and not settings.host.startswith(LOOPBACK):
        log.warning(
            "anybody who reaches %s may use this server: set --api-key",
            settings.host,
        )
    if ring and doors.wyoming:
        log.warning("the Wyoming port knows no keys: anybody who reaches it may use this server")
    store = open_store(settings.voices, settings.voice_cache_bytes)
    spans = _spans(settings.otlp_traces_endpoint)
    workers = worker_options(settings, devices)
    _check_engine(settings, devices, triton, triton_settings)
    with (
        _address(settings, workers, triton, triton_settings) as address,
        suppress(asyncio.CancelledError),  # by SIGTERM
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(_run(workers, address, settings, store, ring, doors, transport, spans))


def worker_options(settings: Settings, devices: Sequence[str]) -> list[WorkerOptions]:
    """The options of each worker on this machine, model after model."""
    lm_device, token2wav_devices = _split_devices(settings, devices)
    llm = llm_server(settings)
    if llm and lm_device:
        raise InputError("with --llm-url the LM runs elsewhere: give --device, and no --lm-device")
    return [
        WorkerOptions(
            model=model,
            device=device,
            dtype=settings.dtype,
            lm_file=settings.lm,
            flow_backend=settings.flow_backend,
            flow_engines=settings.engines,
            kernels=settings.kernels,
            threads=settings.threads,
            profile=settings.profile,
            slots=settings.slots,
            gpu_memory=settings.gpu_memory,
            waiting=settings.waiting,
            max_wait=settings.max_wait_seconds,
            voice_cache_bytes=settings.voice_cache_bytes,
            max_unread_bytes=settings.max_unread_bytes,
            token2wav_devices=token2wav_devices,
            llm=llm,
        )
        for model in settings.models
        for device in devices or [lm_device or settings.device]
    ]


def llm_server(settings: Settings) -> LLMServer | None:
    """The LLM server that draws the speech tokens, if any."""
    if not settings.llm_url:
        if given := settings.options & {"llm_model", "llm_prompt", "llm_api_key"}:
            raise InputError(f"{option_name(min(given))} is for an LLM server: give --llm-url")
        return None
    return LLMServer(
        settings.llm_url,
        settings.llm_model,
        settings.llm_api_key.get_secret_value(),
        settings.llm_prompt,
        sampling=LLMSampling(
            settings.llm_temperature,
            settings.llm_top_p,
            settings.llm_top_k,
            settings.llm_repetition_penalty,
            settings.llm_max_tokens,
        ),
        connect_seconds=settings.llm_connect_seconds,
        first_seconds=settings.llm_first_seconds,
        between_seconds=settings.llm_between_seconds,
    )


def _split_devices(settings: Settings, devices: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The device of the LM and those of token2wav where they run apart, else nothing."""
    lm, several = settings.lm_device, settings.token2wav_device.split(",")
    token2wav = tuple(name.strip() for name in several if name.strip())
    if devices and not settings.options & {"lm_device", "token2wav_device"}:
        return "", ()  # the command line goes before the environment
    if bool(lm) != bool(token2wav) or (lm and devices):
        raise InputError("give --lm-device and --token2wav-device together, and no --device")
    return lm, token2wav


def _check_engine(
    settings: Settings, devices: Sequence[str], triton: bool, triton_settings: Sequence[str]
) -> None:
    if triton_settings and not triton:
        raise InputError("--set is for --triton")
    if len(settings.models) > 1 and (triton or settings.engine or settings.llm_url):
        raise InputError(
            "several models are for workers on this machine: give one --model, or leave out "
            "--triton, --engine and --llm-url"
        )
    if settings.engine == RAY:
        if triton or len(devices) > 1:
            raise InputError(
                "with --engine ray each worker has one --device, and there is no --triton: "
                "COSYSERVE_RAY_MAX_WORKERS says how many workers there are"
            )
        return
    here = settings.options & {
        *("model", "lm", "lm_device", "dtype", "profile", "llm_url", "flow_backend", "kernels")
    }
    if settings.engine and (here or devices or triton):
        raise InputError(
            "--model, --lm, devices, --dtype, --profile, --llm-url, --flow-backend, --kernels and "
            "--triton are for this machine: leave out --engine"
        )


@contextmanager
def _address(
    settings: Settings,
    workers: Sequence[WorkerOptions],
    triton: bool,
    triton_settings: Sequence[str],
) -> Iterator[str]:
    """What computes: the engine of the settings, or the triton:// address of a server here."""
    if not triton:
        yield settings.engine
        return
    from cosyserve.deploy.triton.here import settings_here, triton_here

    devices = [(worker.device, ",".join(worker.token2wav_devices)) for worker in workers]
    with triton_here(settings_here(settings, devices, triton_settings)) as address:
        yield address


class Pools(Models):
    """A pool of workers for each model."""

    def __init__(self, workers: Sequence[WorkerOptions]) -> None:
        models = list(dict.fromkeys(options.model for options in workers))
        self.pools = [
            WorkerPool(WorkerEngine(options) for options in workers if options.model == model)
            for model in models
        ]
        super().__init__(self.pools, models)

    async def start(self) -> None:
        await asyncio.gather(*(pool.start() for pool in self.pools))
        self.check_names()


def _engine(
    workers: Sequence[WorkerOptions], address: str, settings: Settings
) -> Pools | TritonEngine | RayEngine:
    if not address:
        return Pools(workers)
    if address == RAY:
        return _ray_engine(workers[0], settings)
    from cosyserve.triton.engine import TritonEngine

    return TritonEngine.of(address)


def _ray_engine(options: WorkerOptions, settings: Settings) -> RayEngine:
    try:
        from cosyserve.ray.autoscale import Autoscaler
        from cosyserve.ray.engine import RayEngine
        from cosyserve.ray.worker import Share
    except ModuleNotFoundError as error:
        raise InputError("--engine ray needs Ray: pip install 'cosyserve[ray]'") from error
    gpus = 0.0 if options.device == "cpu" else settings.ray_gpus
    share = Share(gpus, cpus=options.threads or 1)
    scale = Autoscaler(settings.ray_min_workers, settings.ray_max_workers)
    return RayEngine(options, share, scale)


def _spans(endpoint: str) -> Spans | None:
    if not endpoint:
        return None
    try:
        from cosyserve.gateway.telemetry.spans import open_spans
    except ModuleNotFoundError as error:
        raise InputError(
            "--otlp-traces-endpoint needs OpenTelemetry: pip install 'cosyserve[otel]'"
        ) from error
    return open_spans(endpoint)


async def _run(
    workers: Sequence[WorkerOptions],
    address: str,
    settings: Settings,
    store: VoiceStore,
    keys: KeyRing,
    doors: Doors,
    transport: Transport,
    spans: Spans | None,
) -> None:
    limits, policy = Limits.of(settings), Policy.of(settings)  # before anything takes its time
    check_free(settings.host, settings.port)
    engine = _engine(workers, address, settings)
    loop, starting = asyncio.get_running_loop(), asyncio.current_task()
    assert starting
    try:
        # A worker that loads a model would not notice that its gateway has gone. The HTTP server
        # has a handler of its own.
        loop.add_signal_handler(signal.SIGTERM, starting.cancel)
        await engine.start()
        await serve_http(
            *(engine, store, settings.host, settings.port, limits, keys, settings.default_voice),
            policy=policy,
            spans=spans,
            doors=doors,
            transport=transport,
        )
    finally:
        await engine.close()
