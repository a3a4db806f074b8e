"""A whole run: items, load, client and report, put together."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from cosyserve.bench.client import Endpoint
from cosyserve.bench.figures import figures
from cosyserve.bench.items import Item, Single, read_items
from cosyserve.bench.report.report import BenchOptions, Report, this_host
from cosyserve.bench.sample import Sample
from cosyserve.bench.triton.client import TritonEndpoint
from cosyserve.bench.wav_files import make_folder, speech_file, write_wav
from cosyserve.errors import CosyError
from cosyserve.version import __version__


def progress_bar() -> Progress:
    """A bar that only a terminal shows."""
    console = Console(stderr=True)
    return Progress(console=console, transient=True, disable=not console.is_terminal)


async def run_bench(options: BenchOptions) -> Report:
    """Sends all requests and waits for their answers. On a terminal, a bar shows how far it is."""
    items = read_items(options.source, options.requests)
    folder = options.save_audio
    if folder:
        make_folder(folder)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    bar = progress_bar()
    client = options.endpoint.client()
    async with aclosing(client):
        await client.check_server()
        with bar:
            task = bar.add_task("requests", total=len(items))

            async def send(item: Item) -> Sample:
                sample, audio = await client.speak(item)
                if folder and audio:
                    await asyncio.to_thread(write_wav, speech_file(folder, item.id), audio)
                bar.advance(task)
                return sample

            samples = await options.load.run(items, send)
    samples.sort(key=lambda sample: sample.sent)
    return Report(
        version=__version__,
        started=started,
        options=options,
        host=this_host(),
        figures=figures(samples),
        samples=tuple(samples),
    )


async def speak_once(endpoint: Endpoint | TritonEndpoint, source: Single, file: Path) -> Sample:
    """Sends one request and writes its speech as a WAV file. A failure is raised."""
    (item,) = source.items(1)
    client = endpoint.client()
    async with aclosing(client):
        await client.check_server()
        sample, audio = await client.speak(item)
    if sample.failure is not None:
        raise CosyError(sample.failure.detail)
    write_wav(file, audio)
    return sample
