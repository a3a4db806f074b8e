"""On a GPU: captured steps are the plain ones, bit by bit, and the laws hold there, too."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from cosyserve.checkpoints.model import Model, assemble
from cosyserve.checkpoints.testmodel import random_parts
from cosyserve.contracts import AudioChunk, Floats, Mode, Sampling, SpeechRequest
from cosyserve.engine.compute.generation import Generation, WholeText
from cosyserve.engine.compute.graphs import vocoder
from cosyserve.engine.compute.lm_runner import LMRunner
from cosyserve.engine.compute.token2wav import Token2Wav
from cosyserve.engine.scheduling.start import scheduler_of
from cosyserve.engine.tts import TTS
from cosyserve.errors import CosyError
from cosyserve.models.config import LMConfig
from cosyserve.models.lm.lm import SpeechLM

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
CONFIG = LMConfig(128, 192, 3, 4, 2, text_vocab=50, speech_tokens=200)


@pytest.fixture(autouse=True)
def no_tf32() -> Iterator[None]:
    with torch.backends.cudnn.flags(allow_tf32=False):
        yield


def tokens(dtype: torch.dtype, seeds: range, slots: int, *, captured: bool) -> list[list[int]]:
    """At most one row joins a step: all are at different points."""
    torch.manual_seed(0)
    lm = SpeechLM(CONFIG).eval().requires_grad_(False).to("cuda", dtype)
    runner = LMRunner(lm, slots, 512)
    if captured:
        assert runner.warm_up() > 0
    rows = [
        Generation(WholeText(CONFIG, [CONFIG.sos, 3, s % 50, CONFIG.task], 9), s, Sampling(), 40)
        for s in seeds
    ]
    waiting = list(rows)
    while waiting or runner.rows:
        if waiting and runner.free:
            runner.join(waiting.pop(0))
        runner.step()
        for row in [row for row in runner.rows if row.finish]:
            runner.leave(row)
    return [row.tokens for row in rows]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("slots", [5, 24])
def test_captured_steps_of_the_lm_are_the_plain_ones(dtype: torch.dtype, slots: int) -> None:
    seeds = range(2 * slots)
    assert tokens(dtype, seeds, slots, captured=True) == tokens(dtype, seeds, slots, captured=False)


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    together = tokens(torch.float32, range(300), 7, captured=True)
    alone = tokens(torch.float32, range(300), 1, captured=True)
    assert sum(a == b for a, b in zip(together, alone, strict=True)) >= 297


def spoken(model: Model, texts: list[str], *, captured: bool) -> list[Floats]:
    scheduler = scheduler_of(model, slots=4)
    if captured:
        scheduler.warm_up()
    voice = TTS(model).default_voice
    heard: list[list[AudioChunk | CosyError]] = [[] for _ in texts]
    for seed, (text, found) in enumerate(zip(texts, heard, strict=True)):
        request = SpeechRequest(text, voice, Mode.PRESET, seed=seed, stream=True)
        scheduler.open(request, found.append)
    while scheduler.step():
        pass
    scheduler.check_idle()
    assert not any(isinstance(item, CosyError) for found in heard for item in found), heard
    return [
        np.concatenate([c.samples for c in found if isinstance(c, AudioChunk)]) for found in heard
    ]


@pytest.mark.parametrize(("kernels", "bound"), [(False, 1e-2), (True, 5e-2)])
def test_the_captured_engine_speaks_as_the_plain_one_and_as_a_cpu(
    kernels: bool, bound: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vocoder's kernels round their products, and its phase is a sum of what comes of them."""
    if not kernels:
        monkeypatch.setattr(vocoder, "fused_hift", lambda _: None)
    texts = ["Hello there.", "How are you today, my friend?", "So."]
    model = assemble(random_parts(), "cuda")
    captured, plain = (spoken(model, texts, captured=yes) for yes in (True, False))
    here = spoken(assemble(random_parts()), texts, captured=False)
    for one, other, cpu in zip(captured, plain, here, strict=True):
        assert len(one) == len(other) == len(cpu)
        np.testing.assert_array_equal(one, other)
        assert np.sqrt(np.mean((one - cpu) ** 2)) < bound * np.sqrt(np.mean(cpu**2)) + 1e-4


def test_captured_chunks_are_the_plain_ones() -> None:
    model = assemble(random_parts(), "cuda")
    ready, plain = (Token2Wav(*model.need_token2wav(), (1, 2, 4)) for _ in range(2))
    assert ready.warm_up() > 0
    voice, rows = TTS(model).default_voice, [[1] * 28, [2, 3] * 20, [4] * 9]
    for final in ([False, True, True], None):
        said = [
            [
                samples
                for samples, _ in token2wav.start(
                    [
                        token2wav.begin(voice, with_prompt=False, seed=s, speed=1.0)
                        for s in range(3)
                    ],
                    rows,
                    final,
                    urgent=True,
                ).get()
            ]
            for token2wav in (ready, plain)
        ]
        for one, other in zip(*said, strict=True):
            np.testing.assert_array_equal(one, other)
