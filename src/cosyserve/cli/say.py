"""`cosyserve say`: a text, heard or in a file."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from cosyserve.audio import AudioFormat, Encoder
from cosyserve.audio.features import SPEECH_RATE
from cosyserve.cli.common import load_tts, note, stored_voices
from cosyserve.cli.options import (
    DefaultVoiceOption,
    DeviceOption,
    DtypeOption,
    LexiconOption,
    LMOption,
    ModelOption,
    StoreOption,
)
from cosyserve.cli.player import find_player, playing
from cosyserve.contracts import SAMPLE_RATE, AudioChunk, Floats, Mode, Voice
from cosyserve.errors import InputError
from cosyserve.settings import Settings
from cosyserve.text.pronunciation.lexicon import read_lexicon

if TYPE_CHECKING:
    from cosyserve.engine.tts import TTS

ENDS = {
    "length": " (stopped at the length limit)",
    "early": " (ended long before the text did: try another seed)",
}
SUFFIXES = {"ogg": "opus", "raw": "pcm", "ul": "mulaw", "al": "alaw", "m4a": "aac"}


def say(
    text: Annotated[str, typer.Argument(help="The text to speak; '-' reads standard input.")] = "-",
    model: ModelOption = None,
    voice: Annotated[
        str | None, typer.Option(help="The voice: a recording, a voice file, or a name.")
    ] = None,
    voice_text: Annotated[str, typer.Option(help="The words of the voice's recording.")] = "",
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            help="The file to write; '-' is standard output. Without it, the speech is played.",
        ),
    ] = None,
    audio_format: Annotated[
        AudioFormat | None,
        typer.Option("--format", help="The audio format; by default that of the file's suffix."),
    ] = None,
    rate: Annotated[
        int | None,
        typer.Option(help="The sample rate of the file; by default 24000 (G.711: 8000)."),
    ] = None,
    mode: Annotated[
        Mode | None,
        typer.Option(help="The use of the voice; by default the fullest that the voice allows."),
    ] = None,
    instruct: Annotated[
        str, typer.Option(help="An instruction how to speak, e.g. 'Speak slowly.'")
    ] = "",
    source: Annotated[
        Path | None, typer.Option(help="A recording to convert to the voice, instead of a text.")
    ] = None,
    speed: Annotated[float, typer.Option(help="The speed of the speech, 0.25 to 4.")] = 1.0,
    seed: Annotated[
        int, typer.Option(help="The seed of all draws: the same seed gives the same speech.")
    ] = 0,
    stream: Annotated[
        bool, typer.Option(help="Speech is computed and written chunk by chunk.")
    ] = True,
    normalize: Annotated[
        bool, typer.Option(help="Numbers are read out, and long texts are split into sentences.")
    ] = True,
    normalise: Annotated[
        bool | None, typer.Option(help="The old spelling of --normalize.", hidden=True)
    ] = None,
    lexicon: LexiconOption = None,
    voice_store: StoreOption = None,
    default_voice: DefaultVoiceOption = None,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    lm: LMOption = None,
) -> None:
    """Speak a text aloud, or into a file.

    \b
    cosyserve say "Good morning."
    cosyserve say "A little slower." --speed 0.8 -o slow.mp3
    echo "What a pipe says." | cosyserve say - -o piped.wav
    """
    from cosyserve.voices.enroll import made_anew

    if source is not None and (text != "-" or instruct or mode not in (None, Mode.CONVERT)):
        raise InputError("--source is spoken: leave out the text, --instruct and --mode")
    if instruct and mode not in (None, Mode.INSTRUCT):
        raise InputError("--instruct is of --mode instruct: leave out one of them")
    if output is None:
        if audio_format or rate:
            raise InputError("--format and --rate are of a file: name one with -o")
        player = find_player()
        kind, destination = player.audio_format, playing(player)
        where = f"played with {player.program}"
    else:
        kind, destination = _format(output, audio_format), _sink(output)
        where = "to standard output" if output == "-" else f"to {output}"
    words = text
    if text == "-" and source is None:
        words = sys.stdin.read() if sys.stdin else ""  # None: whoever started us has closed it
    tts = load_tts(model, device, dtype, lm)
    normalize = normalize if normalise is None else normalise
    options: dict[str, Any] = {"speed": speed, "seed": seed, "normalize": normalize}
    if mode is not None:
        options["mode"] = mode
    if instruct:
        options |= {"mode": Mode.INSTRUCT, "instruction": instruct}
    if source is not None:
        options |= {"mode": Mode.CONVERT, "source": _samples(source)}
    if file := Settings.read(lexicon=lexicon).lexicon:
        options["lexicon"] = read_lexicon(Path(file))
    speaker = made_anew(tts.model, _voice(tts, voice, voice_text, voice_store, default_voice))
    started = time.perf_counter()
    with destination as sink:
        encoder = Encoder(kind, out_rate=rate)
        first = seconds = 0.0
        for chunk in _shown(tts.utter(words, speaker, stream=stream, **options)):
            first = first or time.perf_counter() - started
            seconds += len(chunk.samples) / SAMPLE_RATE
            sink.write(encoder.push(chunk.samples))
            sink.flush()
        sink.write(encoder.finish())
    took = time.perf_counter() - started
    note.print(
        f"{seconds:.2f} s of speech {where}: first audio after {1000 * first:.0f} ms"
        # a player takes the speech no faster than it is heard
        + (f", RTF {took / max(seconds, 1e-9):.3f}" if output else "")
        + ENDS.get(chunk.finish or "", "")
    )


def _voice(
    tts: TTS, voice: str | None, text: str, store: str | None, default_voice: str | None
) -> Voice:
    """The voice of a file, of a recording with its text, or of a name."""
    from cosyserve.voices.file import load_voice
    from cosyserve.voices.library import VoiceLibrary
    from cosyserve.voices.shipped import describe
    from cosyserve.voices.store import DEFAULT

    file = Path(voice or DEFAULT)
    kept = voice and file.suffix == ".safetensors" and os.path.exists(file)
    if voice and not kept and os.path.isfile(file):
        return tts.voice(file, text)
    if not kept and (len(file.parts) > 1 or file.suffix):
        raise InputError(f"{voice}: no such file, or none that may be read")
    if text:
        raise InputError("--voice-text are the words of a recording: give its file with --voice")
    if kept:
        return load_voice(file)
    chosen = Settings.read(default_voice=default_voice).default_voice
    shipped = describe(tts.model).voices
    return VoiceLibrary(stored_voices(store), lambda: shipped, chosen).get(voice or DEFAULT)


def _samples(file: Path) -> Floats:
    """A recording as the speech tokenizer reads it."""
    from cosyserve.audio import decode, resample

    audio = decode(file)
    return resample(audio.samples, audio.rate, SPEECH_RATE)


def _format(output: str, audio_format: AudioFormat | None) -> AudioFormat:
    """The format that is asked for, or that of the file's suffix."""
    if not output:
        raise InputError("-o is empty: name a file, or '-' for standard output")
    if audio_format is not None:
        return audio_format
    suffix = "wav" if output == "-" else Path(output).suffix.lstrip(".").lower()
    try:
        return AudioFormat(SUFFIXES.get(suffix, suffix))
    except ValueError:
        known = ", ".join(AudioFormat)
        raise InputError(f"{output}: unknown suffix; use --format with one of {known}") from None


@contextlib.contextmanager
def _sink(output: str) -> Iterator[BinaryIO]:
    """Standard output, a pipe or a device, or a file that appears only when it is whole."""
    if output == "-":
        if not sys.stdout:
            raise InputError("-o - is standard output, which is closed: name a file")
        yield sys.stdout.buffer
        return
    try:
        if Path(output).exists() and not Path(output).is_file():
            with Path(output).open("wb") as stream:
                yield stream
            return
        file = Path(os.path.realpath(output))  # a link stays one
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
    columns = TextColumn("speaking"), BarColumn(), TextColumn("{task.fields[seconds]:.1f} s")
    quiet = not note.is_terminal
    with Progress(
        *columns, TimeElapsedColumn(), console=note, transient=True, disable=quiet
    ) as bar:
        task = bar.add_task("", total=None, seconds=0.0)
        for chunk in chunks:
            bar.update(task, seconds=chunk.start + len(chunk.samples) / SAMPLE_RATE)
            yield chunk
