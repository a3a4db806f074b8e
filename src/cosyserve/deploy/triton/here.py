"""A Triton server on this machine, from a model folder to its address."""

from __future__ import annotations

import logging
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cosyserve.checkpoints.load import device_of
from cosyserve.deploy.triton.models import streaming_model
from cosyserve.deploy.triton.repository import check_default_voice, render
from cosyserve.deploy.triton.settings import TritonSettings
from cosyserve.errors import InputError
from cosyserve.settings import Settings, option_name, variable
from cosyserve.signals import own_handlers
from cosyserve.triton.keeper import TritonKeeper
from cosyserve.triton.process import Ports

LOOPBACK = "127.0.0.1"

log = logging.getLogger(__name__)

# Every setting of `serve` is in one of these. The first are settings of a repository, too, under
# the names that they have there; those of an LLM server have the same names.
PASSED = {
    "model": "model_dir",
    "home": "voices",
    "voice_store": "voices",
    "default_voice": "default_voice",
    "device": "device",
    "lm_device": "device",
    "token2wav_device": "token2wav_device",
    "dtype": "dtype",
    "flow_backend": "flow_backend",
    "flow_engines": "flow_engines",
    "kernels": "kernels",
    "threads": "threads",
    "slots": "slots",
    "waiting": "waiting",
    "voice_cache_bytes": "voice_cache_bytes",
    "max_input_characters": "max_text_characters",
}
OF_AN_LLM_SERVER = {name for name in Settings.model_fields if name.startswith("llm_")}
OF_THE_GATEWAY = {
    *("host", "port", "api_keys", "shutdown_seconds", "max_requests", "max_requests_per_key"),
    *("api_keys_file", "ssl_certfile", "ssl_keyfile", "trusted_proxies"),
    *("max_requests_per_minute", "max_characters_per_minute"),
    *("wyoming_port", "legacy_port", "legacy_grpc_port", "legacy_max_conc"),
    *("max_connections", "max_idle_seconds", "max_body_bytes", "max_request_seconds"),
    *("strict_fields", "model_aliases", "voice_aliases", "lexicon"),
    *("reference_urls", "require_consent"),
    *("watermark_key", "trim_leading_silence"),
    *("metrics_port", "otlp_traces_endpoint"),
}
REFUSED = {
    *("engine", "lm", "profile", "max_wait_seconds", "gpu_memory", "max_unread_bytes"),
    *("ray_min_workers", "ray_max_workers", "ray_gpus"),
}


def settings_here(
    settings: Settings, devices: Sequence[tuple[str, str]], pairs: Sequence[str] = ()
) -> TritonSettings:
    """The repository's settings, by those of `serve` and by `key=value` texts, which go before.

    `devices` has a device and that of token2wav for each worker there would be. What a tritonserver
    can't do is refused.
    """
    given = settings.model_fields_set
    for name in sorted(REFUSED & given):
        if getattr(settings, name) != Settings.model_fields[name].default:
            place = option_name(name) if name in settings.options else variable(name)
            raise InputError(f"{place} is not for --triton: leave out one of them")
    if len(devices) > 1:
        raise InputError(
            "--triton computes on one --device: for several, start a tritonserver on each with "
            "`cosyserve deploy start` and name them all with --engine"
        )
    if any("," in token2wav for _, token2wav in devices):
        raise InputError(
            "--triton has one --token2wav-device: for several, start a tritonserver on each with "
            "`cosyserve deploy start` and name them all with --engine"
        )
    values: dict[str, Any] = {
        PASSED[name]: str(getattr(settings, name))
        for name in PASSED.keys() & given
        if name != "slots" or settings.slots  # 0 leaves it open
    }
    values |= {"model_dir": settings.model, "voices": settings.voices}
    ((values["device"], values["token2wav_device"]),) = devices
    return TritonSettings.of(pairs, **values, **_llm_knobs(settings))


def _llm_knobs(settings: Settings) -> dict[str, Any]:
    """The settings of an LLM server, which have the same names in a Triton repository."""
    if not settings.llm_url:
        return {}
    knobs = settings.model_dump(include=OF_AN_LLM_SERVER)
    return knobs | {"llm_api_key": settings.llm_api_key.get_secret_value()}


@contextmanager
def triton_here(settings: TritonSettings) -> Iterator[str]:
    """Renders a repository and keeps a server on it, on free ports -> its triton:// address."""
    check_default_voice(settings)
    for device in filter(None, (settings.device, settings.token2wav_device)):
        device_of(device)  # a server without it would be started again and again
    with own_handlers(), tempfile.TemporaryDirectory(prefix="cosyserve-repository-") as folder:
        # Who is killed by SIGTERM leaves the server running: so SIGTERM is an exit, which ends it.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        repository, ports = Path(folder) / "repository", Ports.free()
        model = streaming_model(render(settings, repository))
        # It asks nobody for a key, so nobody else may reach it.
        keeper = TritonKeeper(repository, ports, host=LOOPBACK)
        try:
            log.info(
                "tritonserver on %s: HTTP %d, gRPC %d, metrics %d", LOOPBACK, *vars(ports).values()
            )
            keeper.wait_ready()
            yield f"triton://{LOOPBACK}:{ports.grpc}/{model}"
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            keeper.stop()
