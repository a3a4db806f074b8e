"""`cosyserve bench load`: load on a speech server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from cosyserve.cli.options import check_folder


def load(
    url: Annotated[
        str, typer.Option(envvar="COSYSERVE_URL", help="The server, with or without /v1.")
    ] = "http://localhost:8080",
    model: Annotated[str, typer.Option(help="The model to ask for.")] = "tts-1",
    voice: Annotated[str, typer.Option(help="The voice to ask for.")] = "default",
    api_key: Annotated[
        str, typer.Option(envvar="OPENAI_API_KEY", help="The key to send, for a server with keys.")
    ] = "",
    concurrency: Annotated[
        int, typer.Option(help="The number of requests at once, in a closed loop.")
    ] = 1,
    rate: Annotated[
        float | None, typer.Option(help="The requests per second, in an open loop.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed of the open loop's arrivals.")] = 0,
    requests: Annotated[
        int | None, typer.Option(help="The number of requests; by default each text once.")
    ] = None,
    language: Annotated[
        str, typer.Option(help="The language of the built-in sentences, en or zh; by default both.")
    ] = "",
    manifest: Annotated[
        Path | None,
        typer.Option(help="A file of texts, in lines of id|prompt_text|prompt_wav|target_text."),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="A dataset of texts, on Hugging Face.")
    ] = None,
    split: Annotated[str, typer.Option(help="The split of the dataset.")] = "test",
    timeout: Annotated[float, typer.Option(help="The seconds for a whole request.")] = 120.0,
    save_audio: Annotated[
        Path | None, typer.Option(help="The folder to write the speech to.")
    ] = None,
    json: Annotated[
        Path | None, typer.Option(help="The JSON file to write, with each request's figures.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="The PNG file to plot to.")] = None,
    baseline: Annotated[
        Path | None, typer.Option(help="The JSON file of an earlier run to compare with.")
    ] = None,
) -> None:
    """Put load on a speech server and report what its listeners hear."""
    import asyncio

    from cosyserve import bench as benches

    check_folder("--json", json, save_audio)
    check_folder("--plot", plot, save_audio)
    arrivals = benches.ClosedLoop(concurrency) if rate is None else benches.OpenLoop(rate, seed)
    source: benches.Manifest | benches.HubDataset | benches.Sentences = benches.Sentences(language)
    if manifest is not None:
        source = benches.Manifest(manifest)
    elif dataset is not None:
        source = benches.HubDataset(dataset, split)
    endpoint = benches.Endpoint(url, model, voice, api_key, timeout)
    options = benches.BenchOptions(endpoint, arrivals, source, requests, save_audio)
    then = benches.read_baseline(baseline) if baseline else None
    report = asyncio.run(benches.run_bench(options))
    Console().print(benches.run_table(report))
    if then is not None:
        Console().print(benches.baseline_table(report.figures, then))
    if json is not None:
        benches.write_report(report, json)
    if plot is not None:
        benches.write_plot(report, plot)
    if not report.figures.served:
        raise typer.Exit(1)
