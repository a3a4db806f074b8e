"""`cosyserve bench`: load on a speech server.

Knows no figure.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def bench(
    url: Annotated[
        str, typer.Option(envvar="COSYSERVE_URL", help="Server; with or without /v1.")
    ] = "http://localhost:8080",
    model: Annotated[str, typer.Option(help="Model name to ask for.")] = "tts-1",
    voice: Annotated[str, typer.Option(help="Voice to ask for.")] = "default",
    api_key: Annotated[str, typer.Option(envvar="OPENAI_API_KEY", help="If it wants one.")] = "",
    concurrency: Annotated[int, typer.Option(help="Closed loop: tasks at once.")] = 1,
    rate: Annotated[float | None, typer.Option(help="Open loop: requests per second.")] = None,
    seed: Annotated[int, typer.Option(help="Of the open loop's arrivals.")] = 0,
    requests: Annotated[int | None, typer.Option(help="Default: each item once.")] = None,
    language: Annotated[
        str, typer.Option(help="Of the built-in sentences: en or zh. Default: both.")
    ] = "",
    manifest: Annotated[
        Path | None, typer.Option(help="Lines of id|prompt_text|prompt_wav|target_text.")
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="A Hugging Face dataset.")] = None,
    split: Annotated[str, typer.Option(help="Of the dataset.")] = "test",
    timeout: Annotated[float, typer.Option(help="Seconds for a whole request.")] = 120.0,
    save_audio: Annotated[Path | None, typer.Option(help="Folder for the speech.")] = None,
    json: Annotated[Path | None, typer.Option(help="Report with raw samples.")] = None,
    plot: Annotated[Path | None, typer.Option(help="PNG.")] = None,
    baseline: Annotated[Path | None, typer.Option(help="Earlier JSON to compare with.")] = None,
) -> None:
    """Put load on a speech server and report what its listeners hear."""
    import asyncio

    from cosyserve import bench as benches

    load = benches.ClosedLoop(concurrency) if rate is None else benches.OpenLoop(rate, seed)
    source: benches.Manifest | benches.HubDataset | benches.Sentences = benches.Sentences(language)
    if manifest is not None:
        source = benches.Manifest(manifest)
    elif dataset is not None:
        source = benches.HubDataset(dataset, split)
    endpoint = benches.Endpoint(url, model, voice, api_key, timeout)
    options = benches.BenchOptions(endpoint, load, source, requests, save_audio)
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
