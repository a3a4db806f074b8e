"""`cosyserve client`: requests to, and load on, a Triton server, as the original's clients do."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperCommand

from cosyserve.cli.common import note
from cosyserve.cli.options import check_folder, numbers
from cosyserve.errors import InputError

client = typer.Typer(no_args_is_help=True, help="Ask a Triton server, once or many times.")

SENTENCE = "Good morning. It is good to hear from you."
UNUSED = "Accepted for commands written for the original; it means nothing to CosyVoice models."


class RunMode(StrEnum):
    OFFLINE = "offline"
    STREAMING = "streaming"


class Truth(StrEnum):
    TRUE = "True"
    FALSE = "False"


class CacheCommand(TyperCommand):
    """A command whose --use-spk2info-cache may stand alone, which means True."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        flag, words = "--use-spk2info-cache", []
        for word, following in zip(args, [*args[1:], "-"], strict=True):
            alone = word == flag and following.startswith("-")
            words += [word, Truth.TRUE] if alone else [word]
        return super().parse_args(ctx, words)


ReferenceAudio = Annotated[Path | None, typer.Option(help="A recording whose voice is to speak.")]
ReferenceText = Annotated[str, typer.Option(help="The words of that recording.")]
ModelName = Annotated[str, typer.Option(help="The model to ask.")]
Timeout = Annotated[float, typer.Option(help="The seconds for a whole request.")]


@client.command("http")
def client_http(
    server_url: Annotated[str, typer.Option(help="The server's HTTP address.")] = "localhost:8000",
    reference_audio: ReferenceAudio = None,
    reference_text: ReferenceText = "",
    target_text: Annotated[str, typer.Option(help="The text to speak.")] = SENTENCE,
    model_name: ModelName = "cosyvoice2",
    output_audio: Annotated[Path, typer.Option(help="The WAV file to write.")] = Path("output.wav"),
    timeout: Timeout = 200.0,
) -> None:
    """Send one request and write the answer to a file. A model that streams needs gRPC."""
    import asyncio

    from cosyserve import bench as benches

    if output_audio.suffix.lower() != ".wav":
        raise InputError(f"--output-audio {output_audio}: it is a WAV file, so name it .wav")
    check_folder("--output-audio", output_audio)
    endpoint = benches.TritonEndpoint(server_url, "http", model_name, timeout=timeout)
    one = benches.Single(target_text, reference_audio, reference_text)
    sample = asyncio.run(benches.speak_once(endpoint, one, output_audio))
    note.print(
        f"{sample.audio_seconds:.2f} s of speech to {output_audio} after {sample.total:.2f} s"
    )


@client.command("grpc", cls=CacheCommand)
def client_grpc(
    server_addr: Annotated[str, typer.Option(help="The server's host.")] = "localhost",
    server_port: Annotated[
        int, typer.Option(min=1, max=65535, help="The port of its gRPC side.")
    ] = 8001,
    reference_audio: ReferenceAudio = None,
    reference_text: ReferenceText = "",
    target_text: Annotated[str, typer.Option(help="The text to speak, in one request.")] = "",
    huggingface_dataset: Annotated[
        str, typer.Option(help="A dataset of texts to speak, on Hugging Face.")
    ] = "yuekai/seed_tts",
    split_name: Annotated[str, typer.Option(help="The split of the dataset.")] = "wenetspeech4tts",
    manifest_path: Annotated[
        Path | None,
        typer.Option(help="A file of texts to speak, in lines of id|prompt_text|prompt_wav|text."),
    ] = None,
    model_name: ModelName = "cosyvoice2",
    num_tasks: Annotated[int, typer.Option(help="The number of requests at once.")] = 1,
    log_dir: Annotated[Path, typer.Option(help="The folder for speech and figures.")] = Path("tmp"),
    mode: Annotated[
        RunMode, typer.Option(help="Whether an answer comes whole or as a stream.")
    ] = RunMode.OFFLINE,
    use_spk2info_cache: Annotated[
        Truth,
        typer.Option(
            case_sensitive=False,
            help="No recordings are sent: the server speaks in its default voice.",
        ),
    ] = Truth.FALSE,
    timeout: Timeout = 200.0,
    log_interval: Annotated[int, typer.Option(help=UNUSED, hidden=True)] = 5,
    compute_wer: Annotated[bool, typer.Option("--compute-wer", help=UNUSED, hidden=True)] = False,
    chunk_overlap_duration: Annotated[float, typer.Option(help=UNUSED, hidden=True)] = 0.1,
    address: Annotated[
        list[str] | None,
        typer.Option(help="A server as HOST:PORT, in place of the two options; repeatable."),
    ] = None,
    gpus: Annotated[
        list[str] | None,
        typer.Option(help="The numbers of GPUs to measure, e.g. 1,2,3; by default all at once."),
    ] = None,
    instances_per_gpu: Annotated[
        int, typer.Option(help="The servers on each GPU; addresses are in the order of GPUs.")
    ] = 1,
    tasks: Annotated[
        list[str] | None,
        typer.Option(help="The numbers of requests at once per server, e.g. 1,2,3,4,5,6."),
    ] = None,
    llm_gpus: Annotated[
        int, typer.Option(help="The GPUs of the LLM, which count in concurrent_task_per_gpu.")
    ] = 1,
    json: Annotated[Path | None, typer.Option(help="The JSON file to write.")] = None,
) -> None:
    """Send one request, or many, and write speech and figures to the log folder.

    With several addresses, measure some of them at a time, print a table and write its figures.
    """
    import asyncio

    from cosyserve import bench as benches

    check_folder("--json", json, log_dir)
    source: benches.Single | benches.Manifest | benches.HubDataset
    if target_text or reference_audio is not None:
        source, name = benches.Single(target_text, reference_audio, reference_text), "test"
    elif manifest_path is not None:
        source, name = benches.Manifest(manifest_path), manifest_path.stem
    else:
        source, name = benches.HubDataset(huggingface_dataset, split_name), split_name
    servers = tuple(
        benches.TritonEndpoint(
            server,
            "grpc",
            model_name,
            streaming=mode is RunMode.STREAMING,
            recordings=use_spk2info_cache is Truth.FALSE,
            timeout=timeout,
        )
        for server in address or [f"{server_addr}:{server_port}"]
    )
    if len(servers) > 1 or gpus or tasks:
        sweep = benches.Sweep(
            servers,
            source,
            numbers("--gpus", gpus) or (max(1, len(servers) // max(1, instances_per_gpu)),),
            numbers("--tasks", tasks) or (num_tasks,),
            instances_per_gpu,
            llm_gpus,
        )
        rows = asyncio.run(benches.run_sweep(sweep))
        Console().print(benches.sweep_table(rows))
        if json is None:
            benches.make_folder(log_dir)
            json = log_dir / "sweep.json"
        benches.write_sweep(rows, json)
        note.print(f"figures are in {json}", soft_wrap=True)
        served = sum(row.figures.served for row in rows)
    else:
        load = benches.ClosedLoop(num_tasks)
        options = benches.BenchOptions(servers[0], load, source, save_audio=log_dir)
        report = asyncio.run(benches.bench_triton(options, name))
        Console().print(benches.run_table(report))
        if json is not None:
            benches.write_report(report, json)
        served = report.figures.served
        note.print(f"speech and figures are in {log_dir}", soft_wrap=True)
    if not served:
        raise typer.Exit(1)
