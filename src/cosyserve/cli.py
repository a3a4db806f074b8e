"""The command `cosyserve`: options in, calls into the rooms, words for people out.

Knows no model. Rooms are imported by the verb that needs them, so that `--help` is quick. Every
error of ours is one line and exit code 2.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from cosyserve import __version__
from cosyserve.audio import AudioFormat, Encoder
from cosyserve.contracts import SAMPLE_RATE, AudioChunk, CosyError, InputError, Mode, Voice
from cosyserve.settings import Settings

if TYPE_CHECKING:
    from cosyserve.engine.tts import TTS

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Speech from text, with the CosyVoice2 models."
)
voices = typer.Typer(no_args_is_help=True, help="Stored voices.")
app.add_typer(voices, name="voice")
note = Console(stderr=True, highlight=False)

SUFFIXES = {"ogg": "opus", "raw": "pcm", "ul": "mulaw", "m4a": "aac"}

ModelOption = Annotated[
    str | None, typer.Option("--model", "-m", help="Model folder, or 'test'. [COSYSERVE_MODEL]")
]
DeviceOption = Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:N.")]
DtypeOption = Annotated[str | None, typer.Option(help="auto, float32, bfloat16, float16.")]


def main() -> None:
    try:
        app()
    except CosyError as error:
        note.print(f"[red]error:[/red] {error}", soft_wrap=True)
        raise SystemExit(2) from None
    except BrokenPipeError:  # whoever read our output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if show:
        print(f"cosyserve {__version__}")
        raise typer.Exit


@app.command()
def say(
    text: Annotated[str, typer.Argument(help="What to say; '-' reads standard input.")] = "-",
    model: ModelOption = None,
    voice: Annotated[
        str | None, typer.Option(help="A recording, a voice file, or a stored voice's name.")
    ] = None,
    voice_text: Annotated[str, typer.Option(help="What is said in the recording.")] = "",
    output: Annotated[str, typer.Option("--output", "-o", help="File; '-': stdout.")] = "out.wav",
    audio_format: Annotated[
        AudioFormat | None, typer.Option("--format", help="Default: the file's suffix.")
    ] = None,
    rate: Annotated[int | None, typer.Option(help="Sample rate of the output.")] = None,
    mode: Annotated[Mode | None, typer.Option(help="Default: what the voice allows.")] = None,
    instruct: Annotated[str, typer.Option(help="How to speak, e.g. 'Speak slowly.'")] = "",
    source: Annotated[
        Path | None, typer.Option(help="Convert this recording to the voice instead of text.")
    ] = None,
    speed: Annotated[float, typer.Option(help="0.25 to 4.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Same seed, same speech.")] = 0,
    stream: Annotated[bool, typer.Option(help="Compute and write chunk by chunk.")] = True,
    normalise: Annotated[bool, typer.Option(help="Read numbers out, split sentences.")] = True,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
) -> None:
    """Speak a text into a file."""
    kind = _format(output, audio_format)
    words = sys.stdin.read() if text == "-" and source is None else text
    tts = _load(model, device, dtype)
    options: dict[str, object] = {"speed": speed, "seed": seed, "normalise": normalise}
    if mode is not None:
        options["mode"] = mode
    if instruct:
        options |= {"mode": Mode.INSTRUCT, "instruction": instruct}
    if source is not None:
        options |= {"mode": Mode.CONVERT, "source": _recording(source)}
    speaker = _voice(tts, voice, voice_text)
    begun = time.perf_counter()
    with _sink(output) as sink:
        encoder = Encoder(kind, out_rate=rate)
        first = seconds = 0.0
        for chunk in _shown(tts.utter(words, speaker, stream=stream, **options)):
            first = first or time.perf_counter() - begun
            seconds += len(chunk.samples) / SAMPLE_RATE
            sink.write(encoder.push(chunk.samples))
            sink.flush()
        sink.write(encoder.finish())
    took = time.perf_counter() - begun
    where = "standard output" if output == "-" else output
    note.print(
        f"{seconds:.2f} s of speech to {where}: first audio after {1000 * first:.0f} ms, "
        f"RTF {took / max(seconds, 1e-9):.3f}"
        + (" (stopped at the length limit)" if chunk.finish == "length" else "")
    )


@app.command()
def serve(
    model: ModelOption = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="0 takes a free one.")] = None,
    device: Annotated[
        list[str] | None, typer.Option(help="One worker per device; may be repeated.")
    ] = None,
    dtype: DtypeOption = None,
) -> None:
    """Serve speech over HTTP, as OpenAI's API does."""
    import asyncio

    import uvloop

    from cosyserve.engine.remote import WorkerEngine, WorkerOptions, WorkerPool
    from cosyserve.gateway.limits import Limits
    from cosyserve.gateway.serve import serve as serve_http
    from cosyserve.voices.store import FolderStore

    settings = Settings()
    options = [
        WorkerOptions(
            model or settings.model,
            place,
            dtype or settings.dtype,
            settings.threads,
            settings.slots,
            settings.waiting,
        )
        for place in device or [settings.device]
    ]

    async def run() -> None:
        pool = WorkerPool([WorkerEngine(option) for option in options])
        where = host or settings.host, settings.port if port is None else port
        try:
            await pool.start()
            await serve_http(pool, FolderStore(settings.voices), *where, Limits())
        finally:
            await pool.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


@app.command()
def prepare(
    source: Annotated[list[str], typer.Argument(help="Folders or Hub names; 'ms:' = ModelScope.")],
    out: Annotated[Path, typer.Option(help="The folder to write; must not exist.")],
    dtype: Annotated[
        str | None, typer.Option(help="float32, bfloat16 or float16. Default: as published.")
    ] = None,
) -> None:
    """Convert published models to a folder that loads in seconds.

    Several sources are joined: a speech LM and a token2wav make one model.
    """
    from cosyserve.models import prepare as preparing

    preparing.prepare(source, out, dtype, progress=note.is_terminal)
    note.print(f"written: {out}")


@app.command()
def doctor(model: ModelOption = None) -> None:
    """What this machine has, what the model folder has, what is missing, what to do."""
    from cosyserve import doctor as doctors

    findings = doctors.examine(model or Settings().model)
    table = Table(show_header=False, box=None)
    for finding in findings:
        mark = {True: "[green]ok[/green]", False: "[red]missing[/red]", None: ""}[finding.good]
        table.add_row(mark, finding.what, finding.detail)
    Console().print(table)
    for finding in findings:
        if finding.advice:
            Console().print(f"→ {finding.advice}", soft_wrap=True)
    if any(finding.good is False for finding in findings):
        raise typer.Exit(1)


@voices.command("add")
def voice_add(
    name: str,
    recording: Annotated[Path, typer.Argument(help="0.5 to 30 s of one speaker.")],
    text: Annotated[str, typer.Option(help="What is said in it.")] = "",
    consent: Annotated[str, typer.Option(help="Who agreed to this use of their voice.")] = "",
    language: str = "",
    model: ModelOption = None,
    device: DeviceOption = None,
) -> None:
    """Learn a voice from a recording and keep it."""
    from cosyserve.audio import decode
    from cosyserve.voices.enroll import enroll
    from cosyserve.voices.store import FolderStore

    audio = decode(recording)
    tts = _load(model, device, None)
    voice = enroll(tts.model, audio, text, name=name, language=language, consent=consent)
    note.print(f"written: {FolderStore(Settings().voices).put(name, voice)}")


@voices.command("list")
def voice_list() -> None:
    """Names of the stored voices."""
    from cosyserve.voices.store import FolderStore

    for name in FolderStore(Settings().voices).names():
        print(name)


@voices.command("show")
def voice_show(name: str) -> None:
    """What is known of a voice."""
    from cosyserve.voices.store import FolderStore

    voice = FolderStore(Settings().voices).get(name)
    rows = {
        "name": voice.name or name,
        "prompt text": voice.prompt_text or "(none)",
        "prompt": f"{len(voice.speech_tokens) / 25:.2f} s, {len(voice.speech_tokens)} tokens",
        "embedding": str(len(voice.embedding)),
        "model": f"{voice.family} {voice.fingerprint}".strip(),
        "language": voice.language or "(not said)",
        "consent": voice.consent or "(not said)",
        "created": voice.created or "(not said)",
        "hash": voice.content_hash,
    }
    for key, value in rows.items():
        print(f"{key:12} {value}")


@voices.command("remove")
def voice_remove(name: str) -> None:
    """Forget a voice."""
    from cosyserve.voices.store import FolderStore

    FolderStore(Settings().voices).remove(name)


@voices.command("import")
def voice_import(
    file: Annotated[Path, typer.Argument(help="A spk2info.pt of the original.")],
    model: ModelOption = None,
) -> None:
    """Keep all speakers of a spk2info.pt."""
    from cosyserve.voices.spk2info import import_spk2info
    from cosyserve.voices.store import FolderStore

    tokenizer = _load(model, "cpu", None).model.text_tokenizer if model else None
    store = FolderStore(Settings().voices)
    speakers = import_spk2info(file, tokenizer)
    for name in speakers:
        store.check_name(name)
    for name, voice in speakers.items():
        note.print(f"written: {store.put(name, voice)}")


def _load(model: str | None, device: str | None, dtype: str | None) -> TTS:
    settings = Settings()
    import torch

    from cosyserve.engine.tts import load

    if settings.threads:
        torch.set_num_threads(settings.threads)
    tts = load(
        model or settings.model, device=device or settings.device, dtype=dtype or settings.dtype
    )
    if not tts.model.config.speech:
        note.print("[yellow]test model: not speech[/yellow]")
    return tts


def _voice(tts: TTS, given: str | None, text: str) -> Voice | None:
    """A voice file, a recording, or a stored name."""
    from cosyserve.voices.file import load_voice
    from cosyserve.voices.store import FolderStore

    if given is None:
        return None
    file = Path(given)
    if file.suffix == ".safetensors" and file.exists():
        return load_voice(file)
    if file.is_file():
        return tts.voice(file, text)
    if len(file.parts) > 1 or file.suffix:
        raise InputError(f"{given}: no such file")
    return FolderStore(Settings().voices, tts.model.voices).get(given)


def _recording(file: Path) -> object:
    from cosyserve.audio import decode, resample

    audio = decode(file)
    return resample(audio.samples, audio.rate, 16_000)


def _format(output: str, given: AudioFormat | None) -> AudioFormat:
    if given is not None:
        return given
    suffix = "wav" if output == "-" else Path(output).suffix.lstrip(".").lower()
    try:
        return AudioFormat(SUFFIXES.get(suffix, suffix))
    except ValueError:
        known = ", ".join(AudioFormat)
        raise InputError(f"{output}: unknown suffix; use --format with one of {known}") from None


@contextlib.contextmanager
def _sink(output: str) -> Iterator[BinaryIO]:
    """Standard output, or a file that appears only when it is whole."""
    if output == "-":
        yield sys.stdout.buffer
        return
    file = Path(output)
    try:
        handle, partial = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    except OSError as error:
        raise InputError(f"{output}: can't be written: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
        os.chmod(partial, 0o644)
        os.replace(partial, file)
    except OSError as error:
        raise InputError(f"{output}: can't be written: {error.strerror}") from error
    finally:
        Path(partial).unlink(missing_ok=True)


def _shown(chunks: Iterator[AudioChunk]) -> Iterator[AudioChunk]:
    """The chunks, with a bar on a terminal."""
    columns = TextColumn("speaking"), BarColumn(), TextColumn("{task.fields[said]:.1f} s")
    quiet = not note.is_terminal
    with Progress(
        *columns, TimeElapsedColumn(), console=note, transient=True, disable=quiet
    ) as bar:
        task = bar.add_task("", total=None, said=0.0)
        for chunk in chunks:
            said = chunk.start + len(chunk.samples) / SAMPLE_RATE
            bar.update(task, said=said)
            yield chunk


if __name__ == "__main__":
    main()
