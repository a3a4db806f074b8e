"""A whole run: items, load, client and report, put together."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from cosyserve.audio.linear import BYTES_PER_SAMPLE, WavStream
from cosyserve.bench.client import Endpoint
from cosyserve.bench.figures import figures
from cosyserve.bench.items import Item, Single, repeated
from cosyserve.bench.report import BenchOptions, Report, this_host
from cosyserve.bench.sample import Sample
from cosyserve.bench.triton import TritonEndpoint
from cosyserve.contracts import SAMPLE_RATE
from cosyserve.errors import CosyError, InputError
from cosyserve.version import __version__


async def run_bench(options: BenchOptions) -> Report:
    """Sends all requests and waits for their answers. On a terminal, a bar shows how far it is."""
    items = _items(options)
    folder = options.save_audio
    if folder:
        _make_folder(folder)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    console = Console(stderr=True)
    bar = Progress(console=console, transient=True, disable=not console.is_terminal)
    client = options.endpoint.client()
    async with aclosing(client):
        await client.check_server()
        with bar:
            task = bar.add_task("requests", total=len(items))

            async def send(item: Item) -> Sample:
                sample, audio = await client.speak(item)
                if folder and audio:
                    file = folder / f"{item.id.replace('/', '_')}.wav"
                    await asyncio.to_thread(_save, audio, file)
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
    _save(audio, file)
    return sample


def _items(options: BenchOptions) -> list[Item]:
    items = options.source.items(options.requests)
    if not items:
        raise InputError(f"there is nothing to say in {options.source}")
    return repeated(items, options.requests or len(items))


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} can't be made: {error.strerror}") from error


def _save(pcm: bytes, file: Path) -> None:
    header = WavStream(SAMPLE_RATE, len(pcm) // BYTES_PER_SAMPLE).header()
    try:
        file.write_bytes(header + pcm)
    except OSError as error:
        raise InputError(f"{file} can't be written: {error.strerror}") from error
