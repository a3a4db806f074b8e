"""Silence before speech over HTTP and on a WebSocket: left out where it is asked for."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import numpy as np
import pytest

from cosyserve.audio.silence import KEPT
from cosyserve.contracts import SAMPLE_RATE, AudioChunk, SpeechRequest
from cosyserve.settings import Settings
from tests.gateway.serving import serving
from tests.gateway.sine_engine import SineEngine
from tests.gateway.talking import talking

SILENT = 12_000  # samples: the first chunk of 9600, and a quarter of the second


@dataclass
class LateEngine(SineEngine):
    """Takes half a second to begin to hum."""

    async def open(self, request: SpeechRequest) -> AsyncIterator[AudioChunk]:
        begin = 0
        async for chunk in super().open(request):
            silent = max(0, SILENT - begin)
            begin += len(chunk.samples)
            late = chunk.samples.copy()
            late[:silent] = 0.0
            yield replace(chunk, samples=late)


def samples(pcm: bytes) -> np.ndarray:
    return np.frombuffer(pcm, "<i2")


def test_silence_is_left_out_where_it_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cosyserve.gateway")
    with serving(LateEngine()) as server:
        whole = samples(server.say(response_format="pcm").content)
        assert not whole[:SILENT].any()
        for field in ("trim_leading_silence", "suppress_bootstrap_silence"):
            short = samples(server.say(response_format="pcm", **{field: True}).content)
            assert np.array_equal(short, whole[SILENT - KEPT :])
        with talking(server.url) as talk:
            reply = talk.say("Hello.", trim_leading_silence=True)
            assert np.array_equal(samples(reply.audio), short)
        metrics = server.http.get("/metrics").text
    first, trimmed = (json.loads(line) for line in caplog.messages[:2])
    for line, silent_ms in ((first, 500), (trimmed, 20)):
        latest = max(silent_ms, 1000 * line["seconds"])  # of a machine that is busy
        assert silent_ms - 2 <= line["first_audible_ms"] - line["first_audio_ms"] <= latest + 2
    assert trimmed["audio_s"] == pytest.approx(first["audio_s"] - (SILENT - KEPT) / SAMPLE_RATE)
    assert 'cosyserve_first_audible_seconds_count{model="sine"} 4.0' in metrics


def test_an_operator_may_have_it_left_out_for_all() -> None:
    with serving(LateEngine(), Settings(trim_leading_silence=True)) as server:
        whole = server.say(response_format="pcm", trim_leading_silence=False).content
        assert len(whole) - len(server.say(response_format="pcm").content) == 2 * (SILENT - KEPT)


def test_speech_that_is_all_silent_is_still_an_answer() -> None:
    with serving(LateEngine(chunks=1)) as server:
        answer = server.say(response_format="pcm", trim_leading_silence=True)
        assert answer.status_code == 200
        assert len(answer.content) == 2 * KEPT
