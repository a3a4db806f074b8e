"""`cosyserve say`: a text into a file.

Knows no model.
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
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from cosyserve.audio import AudioFormat, Encoder
from cosyserve.cli.common import (
    DeviceOption,
    DtypeOption,
    ModelOption,
    StoreOption,
    load_tts,
    note,
    stored_voices,
)
from cosyserve.contracts import SAMPLE_RATE, AudioChunk, Mode, Voice
from cosyserve.errors import InputError

if TYPE_CHECKING:
    from cosyserve.engine.tts import TTS

SUFFIXES = {"ogg": "opus", "raw": "pcm", "ul": "mulaw", "m4a": "aac"}


def say(
    text: Annotated[str, typer.Argument(help="What to say; '-' reads standard input.")] = "-",
    model: ModelOption = None,
    voice: Annotated[
        str | None, typer.Option(help="A recording, a voice file, or a voice's name.")
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
    normalize: Annotated[bool, typer.Option(help="Read numbers out, split sentences.")] = True,
    voice_store: StoreOption = None,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
) -> None:
    """Speak a text into a file."""
    kind = _format(output, audio_format)
    words = sys.stdin.read() if text == "-" and source is None else text
    tts = load_tts(model, device, dtype)
    options: dict[str, object] = {"speed": speed, "seed": seed, "normalise": normalize}
    if mode is not None:
        options["mode"] = mode
    if instruct:
        options |= {"mode": Mode.INSTRUCT, "instruction": instruct}
    if source is not None:
        options |= {"mode": Mode.CONVERT, "source": _recording(source)}
    speaker = _voice(tts, voice, voice_text, voice_store)
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


def _voice(tts: TTS, given: str | None, text: str, store: str | None) -> Voice | None:
    """A voice file, a recording, or a name."""
    from cosyserve.voices.file import load_voice
    from cosyserve.voices.library import VoiceLibrary
    from cosyserve.voices.shipped import describe

    if given is None:
        return None
    file = Path(given)
    if file.suffix == ".safetensors" and file.exists():
        return load_voice(file)
    if file.is_file():
        return tts.voice(file, text)
    if len(file.parts) > 1 or file.suffix:
        raise InputError(f"{given}: no such file")
    return VoiceLibrary(stored_voices(store), lambda: describe(tts.model).voices).get(given)


def _recording(file: Path) -> object:
    from cosyserve.audio import decode, resample
    from cosyserve.audio.features import SPEECH_RATE

    audio = decode(file)
    return resample(audio.samples, audio.rate, SPEECH_RATE)


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
