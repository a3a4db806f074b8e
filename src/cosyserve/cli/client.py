"""`cosyserve client`: requests to, and load on, a Triton server, as the original's clients do.

Knows no tensor and no figure.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from cosyserve.cli.common import note

client = typer.Typer(no_args_is_help=True, help="Ask a Triton server, once or many times.")


SENTENCE = "Good morning. It is good to hear from you."


class RunMode(StrEnum):
    OFFLINE = "offline"
    STREAMING = "streaming"


ReferenceAudio = Annotated[Path | None, typer.Option(help="A recording whose voice is to speak.")]
ReferenceText = Annotated[str, typer.Option(help="What is said in it.")]
ModelName = Annotated[str, typer.Option(help="The model to ask.")]
Timeout = Annotated[float, typer.Option(help="Seconds for a whole request.")]


@client.command("http")
def client_http(
    server_url: Annotated[str, typer.Option(help="The server's HTTP side.")] = "localhost:8000",
    reference_audio: ReferenceAudio = None,
    reference_text: ReferenceText = "",
    target_text: Annotated[str, typer.Option(help="What to say.")] = SENTENCE,
    model_name: ModelName = "cosyvoice2",
    output_audio: Annotated[Path, typer.Option(help="The file to write.")] = Path("output.wav"),
    timeout: Timeout = 200.0,
) -> None:
    """One request; the answer is a file. A model that streams is asked over gRPC."""
    import asyncio

    from cosyserve import bench as benches

    endpoint = benches.TritonEndpoint(server_url, "http", model_name, timeout=timeout)
    one = benches.Single(target_text, reference_audio, reference_text)
    sample = asyncio.run(benches.speak_once(endpoint, one, output_audio))
    note.print(
        f"{sample.audio_seconds:.2f} s of speech to {output_audio} after {sample.total:.2f} s"
    )


@client.command("grpc")
def client_grpc(
    server_addr: Annotated[str, typer.Option(help="The server's host.")] = "localhost",
    server_port: Annotated[int, typer.Option(help="Of its gRPC side.")] = 8001,
    reference_audio: ReferenceAudio = None,
    reference_text: ReferenceText = "",
    target_text: Annotated[str, typer.Option(help="What to say, once.")] = "",
    huggingface_dataset: Annotated[
        str, typer.Option(help="What to say: a dataset of Hugging Face.")
    ] = "yuekai/seed_tts",
    split_name: Annotated[str, typer.Option(help="Of the dataset.")] = "wenetspeech4tts",
    manifest_path: Annotated[
        Path | None, typer.Option(help="What to say: lines of id|prompt_text|prompt_wav|text.")
    ] = None,
    model_name: ModelName = "cosyvoice2",
    num_tasks: Annotated[int, typer.Option(help="Requests at once.")] = 1,
    log_dir: Annotated[Path, typer.Option(help="Folder for speech and figures.")] = Path("tmp"),
    mode: Annotated[RunMode, typer.Option(help="One answer, or a stream.")] = RunMode.OFFLINE,
    use_spk2info_cache: Annotated[
        bool, typer.Option(help="Send no recordings: the server speaks in its own voice.")
    ] = False,
    timeout: Timeout = 200.0,
    log_interval: Annotated[int, typer.Option(hidden=True)] = 5,
    compute_wer: Annotated[bool, typer.Option("--compute-wer", hidden=True)] = False,
    chunk_overlap_duration: Annotated[float, typer.Option(hidden=True)] = 0.1,
) -> None:
    """One request or a benchmark; speech and figures are files of the log folder."""
    # The last three mean nothing to CosyVoice models: commands written for the original have them.
    import asyncio
    from contextlib import aclosing

    from cosyserve import bench as benches

    source: benches.Single | benches.Manifest | benches.HubDataset
    if target_text or reference_audio is not None:
        source, name = benches.Single(target_text, reference_audio, reference_text), "test"
    elif manifest_path is not None:
        source, name = benches.Manifest(manifest_path), manifest_path.stem
    else:
        source, name = benches.HubDataset(huggingface_dataset, split_name), split_name
    streaming = mode is RunMode.STREAMING
    endpoint = benches.TritonEndpoint(
        f"{server_addr}:{server_port}",
        "grpc",
        model_name,
        streaming,
        recordings=not use_spk2info_cache,
        timeout=timeout,
    )
    options = benches.BenchOptions(
        endpoint, benches.ClosedLoop(num_tasks), source, save_audio=log_dir
    )

    async def run() -> benches.Report:
        report = await benches.run_bench(options)
        server = endpoint.client()
        async with aclosing(server):
            facts = await server.statistics(), await server.config()
        benches.write_triton_files(report, streaming, *facts, log_dir, name)
        return report

    report = asyncio.run(run())
    Console().print(benches.run_table(report))
    if not report.figures.served:
        raise typer.Exit(1)
