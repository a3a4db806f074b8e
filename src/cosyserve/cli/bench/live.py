"""`cosyserve bench live`: conversations with a speech server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from cosyserve.cli.options import check_folder, words


def live(
    url: Annotated[
        str, typer.Option(envvar="COSYSERVE_URL", help="The server, with or without /v1.")
    ] = "http://localhost:8080",
    dialect: Annotated[
        list[str] | None,
        typer.Option(
            help="The protocol to talk in: ours, contexts (ours, too), dashscope, elevenlabs, "
            "cartesia, deepgram or omni; by default all, one after the other. The option may be "
            "repeated."
        ),
    ] = None,
    model: Annotated[str, typer.Option(help="The model to ask for.")] = "tts-1",
    voice: Annotated[str, typer.Option(help="The voice to ask for.")] = "default",
    api_key: Annotated[
        str, typer.Option(envvar="OPENAI_API_KEY", help="The key to send, for a server with keys.")
    ] = "",
    conversations: Annotated[
        int, typer.Option(help="The number of conversations in each dialect.")
    ] = 4,
    turns: Annotated[int, typer.Option(help="The number of texts in each conversation.")] = 5,
    concurrency: Annotated[int, typer.Option(help="The number of conversations at once.")] = 1,
    words_per_second: Annotated[
        tuple[float, float], typer.Option(help="The slowest and the fastest pace of the words.")
    ] = (20.0, 60.0),
    interrupts: Annotated[
        float, typer.Option(help="The share of texts that are interrupted while they are heard.")
    ] = 0.25,
    language: Annotated[str, typer.Option(help="The language of the texts, en or zh.")] = "en",
    seed: Annotated[int, typer.Option(help="The seed of paces and interruptions.")] = 0,
    timeout: Annotated[float, typer.Option(help="The seconds for a whole text.")] = 60.0,
    json: Annotated[Path | None, typer.Option(help="The JSON file to write.")] = None,
) -> None:
    """Talk to a speech server as voice agents do: words in, audio out, interruptions."""
    import asyncio

    from cosyserve.bench import Endpoint
    from cosyserve.bench.live import DIALECTS, LiveOptions, Talker, live_table, run_live
    from cosyserve.bench.live import write_live_report as write

    check_folder("--json", json)
    options = LiveOptions(
        Endpoint(url, model, voice, api_key, timeout),
        dialects=words(dialect) or tuple(DIALECTS),
        talker=Talker(*words_per_second, interrupts),
        conversations=conversations,
        turns=turns,
        concurrency=concurrency,
        language=language,
        seed=seed,
    )
    report = asyncio.run(run_live(options))
    Console().print(live_table(report))
    if json is not None:
        write(report, json)
    served = all(found.turns.served for found in report.figures.values())
    if report.left or not served:
        raise typer.Exit(1)
