"""Texts to speech in batches, stage by stage: all tokens of a batch, then all of its audio.

The stages never overlap, so that each has a time of its own.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import numpy as np

from cosyserve.audio import AudioFormat, encode
from cosyserve.backends.protocols import LMBackend, LMRequest, Token2WavBackend
from cosyserve.bench.items import Item, Reference, Source, read_items
from cosyserve.bench.run import progress_bar
from cosyserve.bench.wav_files import make_folder, speech_file, write_wav
from cosyserve.contracts import SAMPLE_RATE, Floats, Recording, Voice
from cosyserve.errors import InputError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OfflineModel:
    """What speaks, wherever each part of it runs."""

    lm: LMBackend
    token2wav: Token2WavBackend
    learn: Callable[[Recording], Voice]
    default_voice: Callable[[], Voice]  # of texts without a recording
    plan: Callable[[str, Voice], Sequence[LMRequest]]  # one for each segment of a text


@dataclass(frozen=True)
class OfflineRun:
    """Everything that decides a run, but the model."""

    source: Source
    batch_size: int = 1  # utterances that the LM has at once
    token2wav_batch_size: int = 1
    reference: Reference | None = None  # speaks all texts, in place of their own
    runs: int = 1  # the last one counts
    folder: Path | None = None  # for speech

    def __post_init__(self) -> None:
        for name in ("batch_size", "token2wav_batch_size", "runs"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")


@dataclass
class OfflineTimes:
    """Seconds by stage, under the original's names. Loading holds the three stages behind it."""

    data_load_time_seconds: float = 0.0
    audio_processing_time_in_collator_seconds: float = 0.0
    speech_tokenization_time_in_collator_seconds: float = 0.0
    text_tokenization_time_in_collator_seconds: float = 0.0
    llm_time_seconds: float = 0.0
    llm_post_processing_time_seconds: float = 0.0
    token2wav_time_seconds: float = 0.0
    audio_save_time_seconds: float = 0.0
    total_audio_duration_seconds: float = 0.0
    pipeline_time_seconds: float = 0.0

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        setattr(self, stage, getattr(self, stage) + time.perf_counter() - begun)

    @property
    def rtf(self) -> float | None:
        audio = self.total_audio_duration_seconds
        return self.pipeline_time_seconds / audio if audio else None


@dataclass(eq=False)
class OfflineUtterance:
    """A segment of an item's text."""

    item: str
    last: bool  # segment of its item
    voice: Voice
    request: LMRequest
    tokens: list[int] = field(default_factory=list)
    samples: Floats = field(default_factory=lambda: np.zeros(0, np.float32))


async def run_offline(model: OfflineModel, run: OfflineRun) -> OfflineTimes:
    """Speaks every text in every run."""
    if run.folder:
        make_folder(run.folder)
    for _ in range(run.runs):
        times = await _run_once(model, run)
    return times


async def _run_once(model: OfflineModel, run: OfflineRun) -> OfflineTimes:
    times = OfflineTimes()
    with times.timed("pipeline_time_seconds"), progress_bar() as bar:
        with times.timed("data_load_time_seconds"):
            items = read_items(run.source)
        shown = bar.add_task(f"batches of {run.batch_size}", total=len(items))
        utterances = _utterances(model, run, items, times)
        said: list[Floats] = []
        while batch := _next_batch(utterances, run.batch_size, times):
            with times.timed("llm_time_seconds"):
                answers = await asyncio.gather(*(_tokens(model.lm, one) for one in batch))
            with times.timed("llm_post_processing_time_seconds"):
                for one, pieces in zip(batch, answers, strict=True):
                    one.tokens = [token for piece in pieces for token in piece]
                    if not one.tokens:
                        log.warning("the LM drew no speech token for %s", one.item)
            async for one in _audio(model.token2wav, batch, run.token2wav_batch_size, times):
                said.append(one.samples)
                times.total_audio_duration_seconds += len(one.samples) / SAMPLE_RATE
                if one.last:
                    with times.timed("audio_save_time_seconds"):
                        _save(run.folder, one.item, said)
                    said.clear()
                    bar.advance(shown)
    return times


def _utterances(
    model: OfflineModel, run: OfflineRun, items: Sequence[Item], times: OfflineTimes
) -> Iterator[OfflineUtterance]:
    """What the LM and the token2wav need, prepared as it is asked for."""
    for item in items:
        if run.reference:
            item = replace(item, reference=run.reference)
        with times.timed("audio_processing_time_in_collator_seconds"):
            recording = item.recording()
        with times.timed("speech_tokenization_time_in_collator_seconds"):
            voice = model.learn(recording) if recording else model.default_voice()
        with times.timed("text_tokenization_time_in_collator_seconds"):
            requests = model.plan(item.text, voice)
        for number, request in enumerate(requests, start=1):
            yield OfflineUtterance(item.id, number == len(requests), voice, request)


def _next_batch(
    utterances: Iterator[OfflineUtterance], size: int, times: OfflineTimes
) -> list[OfflineUtterance]:
    with times.timed("data_load_time_seconds"):
        return list(islice(utterances, size))


async def _tokens(lm: LMBackend, utterance: OfflineUtterance) -> list[tuple[int, ...]]:
    """All of an utterance's tokens, in the pieces in which they come: the fewer the better."""
    request = replace(utterance.request, first_chunk=utterance.request.max_tokens)
    async with aclosing(lm.generate(request)) as pieces:
        return [piece.ids async for piece in pieces]


async def _audio(
    token2wav: Token2WavBackend, batch: Sequence[OfflineUtterance], size: int, times: OfflineTimes
) -> AsyncIterator[OfflineUtterance]:
    """The batch in its order, each with its samples; without tokens there are none."""
    for start in range(0, len(batch), size):
        part = batch[start : start + size]
        with times.timed("token2wav_time_seconds"):
            await asyncio.gather(*(_speak(token2wav, one) for one in part if one.tokens))
        for one in part:
            yield one


async def _speak(token2wav: Token2WavBackend, utterance: OfflineUtterance) -> None:
    stream = token2wav.begin(
        utterance.voice,
        with_prompt=bool(len(utterance.voice.speech_tokens)),
        seed=utterance.request.seed,
        speed=1.0,
        stream=False,
    )
    try:
        utterance.samples = await stream.advance(utterance.tokens, final=True)
    finally:
        await stream.close()


def _save(folder: Path | None, name: str, samples: Sequence[Floats]) -> None:
    if folder:
        pcm = encode(np.concatenate(samples), AudioFormat.PCM)
        write_wav(speech_file(folder, name), pcm)
