"""Texts in batches: the speech is the engine's own, and stages keep to themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from cosyserve.audio import AudioFormat, decode, encode
from cosyserve.backends.protocols import LMRequest, SpeechTokens
from cosyserve.bench.items import Manifest, Reference, Sentences, Single
from cosyserve.bench.offline.pipeline import OfflineModel, OfflineRun, OfflineTimes, run_offline
from cosyserve.checkpoints.model import Model
from cosyserve.cli.bench.offline_model import offline_model
from cosyserve.contracts import Floats, SpeechRequest, Voice
from cosyserve.engine.speak import speak
from cosyserve.engine.split.lm_service import LMService
from cosyserve.engine.split.token2wav_service import Token2WavService
from cosyserve.errors import InputError, WorkerError
from cosyserve.voices.enroll import enroll
from cosyserve.voices.shipped import default_voice
from tests.decibels import decibels

NOISE = np.random.default_rng(0).standard_normal(24_000).astype(np.float32) * 0.1
SAMPLES = 960  # of a token


@dataclass
class Parts:
    """An LM and a token2wav that write down who is inside."""

    tokens: int = 2
    inside: list[str] = field(default_factory=list)
    most: dict[str, int] = field(default_factory=dict)
    seen: list[set[str]] = field(default_factory=list)
    error: Exception | None = None

    async def work(self, name: str) -> None:
        self.inside.append(name)
        self.most[name] = max(self.most.get(name, 0), self.inside.count(name))
        await asyncio.sleep(0)
        self.seen.append(set(self.inside))
        self.inside.remove(name)

    async def generate(self, request: LMRequest) -> AsyncGenerator[SpeechTokens, None]:
        await self.work("lm")
        if self.error:
            raise self.error
        yield SpeechTokens(tuple(range(self.tokens)))
        yield SpeechTokens((), "stop")

    def begin(
        self, voice: Voice, *, with_prompt: bool, seed: int, speed: float, stream: bool
    ) -> Parts:
        assert not stream
        return self

    async def advance(self, tokens: Sequence[int], *, final: bool) -> Floats:
        assert final
        await self.work("token2wav")
        return np.full(SAMPLES * len(tokens), 0.5, np.float32)

    async def close(self) -> None: ...


def speaker(parts: Parts, segments: int = 1) -> OfflineModel:
    nobody = Voice("", np.zeros(0, np.int32), np.zeros((0, 80), np.float32), np.ones(4, np.float32))
    request = LMRequest((1,), (), 1, 10)
    return OfflineModel(
        parts, parts, lambda _: nobody, lambda: nobody, lambda *_: [request] * segments
    )


def run(model: OfflineModel, options: OfflineRun) -> OfflineTimes:
    return asyncio.run(run_offline(model, options))


@pytest.mark.parametrize(("batch", "audio_batch"), [(1, 1), (4, 1), (4, 3), (100, 2)])
def test_a_batch_is_drawn_before_it_is_spoken(batch: int, audio_batch: int) -> None:
    parts = Parts()
    times = run(speaker(parts), OfflineRun(Sentences("zh"), batch, audio_batch))
    assert {"lm", "token2wav"} not in parts.seen
    assert parts.most == {"lm": min(batch, 10), "token2wav": min(batch, audio_batch)}
    assert times.total_audio_duration_seconds == pytest.approx(10 * 2 * 0.04)


def test_stages_add_up_to_no_more_than_the_whole(tmp_path: Path) -> None:
    times = run(speaker(Parts()), OfflineRun(Sentences("zh"), 4, folder=tmp_path))
    loading = times.data_load_time_seconds
    stages = (
        times.llm_time_seconds,
        times.llm_post_processing_time_seconds,
        times.token2wav_time_seconds,
        times.audio_save_time_seconds,
    )
    assert min(loading, *stages) > 0
    assert loading + sum(stages) <= times.pipeline_time_seconds
    assert (
        times.audio_processing_time_in_collator_seconds
        + times.speech_tokenization_time_in_collator_seconds
        + times.text_tokenization_time_in_collator_seconds
        <= loading
    )
    assert times.rtf == times.pipeline_time_seconds / times.total_audio_duration_seconds


def test_segments_of_a_text_are_one_file(tmp_path: Path) -> None:
    run(speaker(Parts(), segments=3), OfflineRun(Sentences("zh"), 2, folder=tmp_path / "new"))
    files = sorted((tmp_path / "new").iterdir())
    assert [file.name for file in files] == [f"zh-{n:02}.wav" for n in range(1, 11)]
    assert {len(decode(file).samples) for file in files} == {3 * 2 * SAMPLES}


def test_a_text_without_tokens_is_told_and_others_are_spoken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    times = run(speaker(Parts(tokens=0)), OfflineRun(Single("Hi."), folder=tmp_path))
    assert times.rtf is None
    assert "no speech token for test" in caplog.text


def test_what_an_lm_says_is_passed_on() -> None:
    broken = Parts(error=WorkerError("the LLM server is gone"))
    with pytest.raises(WorkerError, match="is gone"):
        run(speaker(broken), OfflineRun(Single("Hi.")))


def test_the_last_run_counts() -> None:
    parts = Parts()
    times = run(speaker(parts), OfflineRun(Single("Hi."), runs=3))
    assert len(parts.seen) == 2 * 3
    assert times.total_audio_duration_seconds == pytest.approx(2 * 0.04)


def test_impossible_runs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="runs must be at least 1, got 0"):
        OfflineRun(Single("Hi."), runs=0)
    for sizes in ((0, 1), (1, 0)):
        with pytest.raises(InputError, match="batch_size must be at least 1"):
            OfflineRun(Single("Hi."), *sizes)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="can't be made"):
        run(speaker(Parts()), OfflineRun(Single("Hi."), folder=tmp_path / "file"))


def test_the_speech_is_the_engines_own(either_model: Model, tmp_path: Path) -> None:
    (tmp_path / "me.wav").write_bytes(encode(NOISE, AudioFormat.WAV))
    (tmp_path / "list.txt").write_text(
        "a|Words.|me.wav|The quick brown fox.\nb|Words.|me.wav|A dog.\n"
    )
    reference = Reference.of(tmp_path / "me.wav", "Words.")

    async def measure() -> None:
        lm = LMService(either_model.need_lm()[0], slots=2)
        token2wav = Token2WavService(*either_model.need_token2wav())
        try:
            parts = offline_model(either_model, lm, token2wav)
            manifest = Manifest(tmp_path / "list.txt")
            await run_offline(parts, OfflineRun(manifest, 2, 2, folder=tmp_path / "own"))
            single = Single("The quick brown fox.")
            given = OfflineRun(single, reference=reference, folder=tmp_path / "given")
            await run_offline(parts, given)
            await run_offline(parts, OfflineRun(single, folder=tmp_path / "default"))
        finally:
            await lm.close()
            await token2wav.close()

    asyncio.run(measure())
    learn = partial(enroll, either_model)
    recording = Manifest(tmp_path / "list.txt").items(1)[0].recording()
    assert recording
    for file, text, voice in (
        ("own/a.wav", "The quick brown fox.", learn(recording)),
        ("own/b.wav", "A dog.", learn(recording)),
        ("given/test.wav", "The quick brown fox.", learn(recording)),
        ("default/test.wav", "The quick brown fox.", default_voice(either_model)),
    ):
        chunks = list(speak(either_model, SpeechRequest(text, voice, voice.mode)))
        expected = np.concatenate([chunk.samples for chunk in chunks])
        assert decibels(decode(tmp_path / file).samples, expected) < -40
