"""Speech tokens to audio, without an LM: hop by hop as a stream does, or as a whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from cosyserve.audio import AudioFormat, encode, resample
from cosyserve.audio.features import SPEECH_RATE
from cosyserve.backends.protocols import Token2WavBackend
from cosyserve.bench.offline.token_items import TokenItem
from cosyserve.bench.report.table import number
from cosyserve.bench.run import progress_bar
from cosyserve.bench.wav_files import make_folder, speech_file, write_wav
from cosyserve.contracts import FRAMES_PER_TOKEN, SAMPLE_RATE, Floats, Voice
from cosyserve.errors import InputError
from cosyserve.voices.enroll import check_recording, enroll, speaker_features, voice_from_features
from cosyserve.voices.shipped import default_voice

if TYPE_CHECKING:
    from cosyserve.checkpoints.model import Model


@dataclass(frozen=True, eq=False)
class TokenUtterance:
    id: str
    tokens: tuple[int, ...]
    voice: Voice


@dataclass(frozen=True)
class Streaming:
    """How tokens are cut: where hops end behind so many prompt tokens, and how far a chunk looks
    ahead."""

    hop_ends: Callable[[int], Iterator[int]]
    lookahead: int

    def chunks(self, prompt_tokens: int, tokens: Sequence[int]) -> Iterator[Sequence[int]]:
        """All tokens so far, look-ahead included, for every call; the last has all of them."""
        for end in self.hop_ends(prompt_tokens):
            if end + self.lookahead >= len(tokens):
                yield tokens
                return
            yield tokens[: end + self.lookahead]


@dataclass(frozen=True)
class TokenTimes:
    """An utterance, or all of them. Times in seconds."""

    id: str
    tokens: int
    calls: int  # of the flow
    first: float  # until the first samples
    total: float
    audio_seconds: float

    @property
    def rtf(self) -> float:
        return self.total / self.audio_seconds


def utterance(model: Model, item: TokenItem) -> TokenUtterance:
    """An item in the voice of its recording, or in the model's own."""
    voice = _voice(model, item)
    flow = model.need_token2wav()[0].config
    if (most := max(item.tokens)) >= flow.speech_tokens:
        raise InputError(f"{item.id}: tokens must be 0..{flow.speech_tokens - 1}, got {most}")
    room = flow.max_frames // FRAMES_PER_TOKEN - flow.encoder.lookahead - len(voice.speech_tokens)
    if len(item.tokens) > room:
        raise InputError(f"{item.id}: {len(item.tokens)} tokens, {room} fit behind the prompt")
    return TokenUtterance(item.id, item.tokens, voice)


def _voice(model: Model, item: TokenItem) -> Voice:
    recording = item.recording
    if recording is None:
        return default_voice(model)
    if not item.prompt_tokens:
        return enroll(model, recording)
    check_recording(recording)
    _, speaker = model.need_prompt_encoders()
    narrow = resample(recording.samples, recording.rate, SPEECH_RATE)
    tokens = np.asarray(item.prompt_tokens, np.int32)
    embedding = speaker(speaker_features(model.config, narrow))
    return voice_from_features(model.config, recording, tokens, embedding)


async def run_tokens(
    token2wav: Token2WavBackend,
    utterances: Sequence[TokenUtterance],
    streaming: Streaming | None,
    *,
    runs: int = 1,
    folder: Path | None = None,
) -> list[TokenTimes]:
    """The times of the last of several runs, utterance after utterance."""
    if runs < 1:
        raise InputError(f"the number of runs must be at least 1, got {runs}")
    if folder:
        make_folder(folder)
    times: list[TokenTimes] = []
    with progress_bar() as bar:
        shown = bar.add_task("utterances", total=runs * len(utterances))
        for run in range(1, runs + 1):
            for one in utterances:
                found, samples = await speak_tokens(token2wav, one, streaming)
                bar.advance(shown)
                if run == runs:
                    times.append(found)
                    if folder:
                        pcm = encode(samples, AudioFormat.PCM)
                        write_wav(speech_file(folder, one.id), pcm)
    return times


async def speak_tokens(
    token2wav: Token2WavBackend, one: TokenUtterance, streaming: Streaming | None
) -> tuple[TokenTimes, Floats]:
    """Without `streaming` as a whole, with full attention."""
    prompt_tokens = len(one.voice.speech_tokens) - one.voice.flow_start
    chunks = [one.tokens] if streaming is None else streaming.chunks(prompt_tokens, one.tokens)
    heard: list[Floats] = []
    first = 0.0
    begun = time.perf_counter()
    stream = token2wav.begin(
        one.voice,
        with_prompt=bool(prompt_tokens),
        seed=0,
        speed=1.0,
        stream=streaming is not None,
    )
    try:
        for tokens in chunks:
            heard.append(await stream.advance(tokens, final=len(tokens) == len(one.tokens)))
            first = first or time.perf_counter() - begun
    finally:
        await stream.close()
    total = time.perf_counter() - begun
    samples = np.concatenate(heard)
    seconds = len(samples) / SAMPLE_RATE
    return TokenTimes(one.id, len(one.tokens), len(heard), first, total, seconds), samples


def tokens_table(times: Sequence[TokenTimes]) -> Table:
    """A row per utterance, and their sum; its first chunk is the mean."""
    table = Table(
        *("id", "tokens", "forward calls", "first chunk (ms)", "total (ms)", "audio (s)", "RTF"),
    )
    for column in table.columns[1:]:
        column.justify = "right"
    mean = sum(one.first for one in times) / len(times)
    everything = TokenTimes(
        "all",
        sum(one.tokens for one in times),
        sum(one.calls for one in times),
        mean,
        sum(one.total for one in times),
        sum(one.audio_seconds for one in times),
    )
    for one in times:
        table.add_row(*_row(one))
    table.add_section()
    table.add_row(*_row(everything))
    return table


def _row(one: TokenTimes) -> tuple[str, ...]:
    figures = 1000 * one.first, 1000 * one.total, one.audio_seconds, one.rtf
    return one.id, str(one.tokens), str(one.calls), *map(number, figures)
