"""`cosyserve serve`: speech over HTTP."""

from __future__ import annotations

from typing import Annotated

import typer

from cosyserve.choices import FlowBackend, KernelChoice, PromptForm
from cosyserve.cli.options import (
    DefaultVoiceOption,
    DtypeOption,
    LexiconOption,
    LMOption,
    StoreOption,
    setting,
)
from cosyserve.settings import ProfileName, Settings


def serve(
    model: Annotated[
        list[str] | None,
        setting("model", "--model", "-m", more="The option may be repeated."),
    ] = None,
    host: Annotated[str | None, setting("host")] = None,
    port: Annotated[int | None, setting("port")] = None,
    api_key: Annotated[
        list[str] | None,
        setting("api_keys", help="A key that clients must send. The option may be repeated."),
    ] = None,
    api_keys_file: Annotated[str | None, setting("api_keys_file")] = None,
    ssl_certfile: Annotated[str | None, setting("ssl_certfile")] = None,
    ssl_keyfile: Annotated[str | None, setting("ssl_keyfile")] = None,
    metrics_port: Annotated[int | None, setting("metrics_port")] = None,
    otlp_traces_endpoint: Annotated[str | None, setting("otlp_traces_endpoint")] = None,
    wyoming_port: Annotated[int | None, setting("wyoming_port")] = None,
    legacy_port: Annotated[int | None, setting("legacy_port")] = None,
    legacy_grpc_port: Annotated[int | None, setting("legacy_grpc_port")] = None,
    voice_store: StoreOption = None,
    default_voice: DefaultVoiceOption = None,
    lexicon: LexiconOption = None,
    device: Annotated[
        list[str] | None,
        setting("device", more="The option may be repeated: each device has a worker."),
    ] = None,
    lm_device: Annotated[str | None, setting("lm_device")] = None,
    token2wav_device: Annotated[
        list[str] | None,
        setting("token2wav_device", more="The option may be repeated."),
    ] = None,
    dtype: DtypeOption = None,
    lm: LMOption = None,
    flow_backend: Annotated[FlowBackend | None, setting("flow_backend")] = None,
    kernels: Annotated[KernelChoice | None, setting("kernels")] = None,
    profile: Annotated[ProfileName | None, setting("profile")] = None,
    llm_url: Annotated[str | None, setting("llm_url")] = None,
    llm_model: Annotated[str | None, setting("llm_model")] = None,
    llm_prompt: Annotated[PromptForm | None, setting("llm_prompt")] = None,
    llm_api_key: Annotated[str | None, setting("llm_api_key")] = None,
    engine: Annotated[str | None, setting("engine")] = None,
    triton: Annotated[
        bool, typer.Option("--triton", help="A tritonserver, started here, computes the speech.")
    ] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting of the tritonserver, as of `cosyserve deploy triton`. "
            "The option may be repeated.",
        ),
    ] = None,
) -> None:
    """Serve speech over HTTP, as OpenAI's API does."""
    from cosyserve import server

    server.serve(
        Settings.read(
            model=",".join(model or ()),
            host=host,
            port=port,
            api_keys_file=api_keys_file,
            ssl_certfile=ssl_certfile,
            ssl_keyfile=ssl_keyfile,
            metrics_port=metrics_port,
            otlp_traces_endpoint=otlp_traces_endpoint,
            wyoming_port=wyoming_port,
            legacy_port=legacy_port,
            legacy_grpc_port=legacy_grpc_port,
            voice_store=voice_store,
            default_voice=default_voice,
            lexicon=lexicon,
            lm_device=lm_device,
            token2wav_device=",".join(token2wav_device or ()),
            dtype=dtype,
            lm=lm,
            flow_backend=flow_backend,
            kernels=kernels,
            profile=profile,
            llm_url=llm_url,
            llm_model=llm_model,
            llm_prompt=llm_prompt,
            llm_api_key=llm_api_key,
            engine=engine,
        ),
        devices=[Settings.read(device=name).device for name in device or ()],
        keys=api_key or (),
        triton=triton,
        triton_settings=set_ or (),
    )
