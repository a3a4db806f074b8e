"""An engine in parts: a model without weights, what is heard of it, when its parts are at rest."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from cosyserve.checkpoints.model import Model
from cosyserve.contracts import AudioChunk, Floats, SpeechRequest
from cosyserve.engine.split.lm_service import LMService
from cosyserve.engine.split.pipeline import SplitEngine
from cosyserve.engine.split.token2wav_service import Token2WavService


@contextmanager
def services(model: Model) -> Iterator[tuple[LMService, Token2WavService]]:
    """The LM of a model and its token2wav, each alone."""
    lm = LMService(model.need_lm()[0], slots=4, max_waiting=8)
    token2wav = Token2WavService(*model.need_token2wav())
    yield lm, token2wav
    asyncio.run(lm.close())
    asyncio.run(token2wav.close())


def weightless(model: Model) -> Model:
    return replace(model, lm=None, token2wavs=(), speech_tokenizer=None, speaker_encoder=None)


async def heard(engine: SplitEngine, request: SpeechRequest) -> list[AudioChunk]:
    return [chunk async for chunk in engine.open(request)]


def samples(chunks: list[AudioChunk]) -> Floats:
    return np.concatenate([chunk.samples for chunk in chunks])


def at_rest(parts_alone: tuple[LMService, Token2WavService]) -> bool:
    lm, token2wav = parts_alone
    return lm.queue.idle and not lm.queue.lm.rows and token2wav.streams == 0


async def comes_to_rest(parts_alone: tuple[LMService, Token2WavService]) -> None:
    for _ in range(200):
        if at_rest(parts_alone):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("something is still held")
