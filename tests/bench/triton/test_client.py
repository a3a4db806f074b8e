"""Runs against a real Triton server whose every delay is known."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosyserve.audio import AudioFormat, decode, encode
from cosyserve.bench.client import NoServerError
from cosyserve.bench.items import Item, Reference, Single
from cosyserve.bench.load import ClosedLoop
from cosyserve.bench.report.report import BenchOptions, Report, write_report
from cosyserve.bench.run import run_bench, speak_once
from cosyserve.bench.sample import Sample
from cosyserve.bench.triton.client import TritonEndpoint
from cosyserve.errors import CosyError, InputError
from tests.triton.scripted import OFFLINE, STREAMING, Scripted, script

RECORDING = encode(np.full(12_000, 0.5, np.float32), AudioFormat.WAV)  # half a second at 24 kHz


def streaming(triton: Scripted, **options: Any) -> TritonEndpoint:
    return TritonEndpoint(triton.grpc, "grpc", STREAMING, True, **options)


def offline(triton: Scripted) -> list[TritonEndpoint]:
    return [
        TritonEndpoint(triton.grpc, "grpc", OFFLINE),
        TritonEndpoint(triton.http, "http", OFFLINE),
    ]


def spoken(endpoint: TritonEndpoint, item: Item) -> tuple[Sample, bytes]:
    async def speak() -> tuple[Sample, bytes]:
        client = endpoint.client()
        try:
            return await client.speak(item)
        finally:
            await client.aclose()

    begun = time.perf_counter()
    sample, pcm = asyncio.run(speak())
    assert sample.total <= time.perf_counter() - begun  # however late a busy machine is
    return sample, pcm


def test_every_chunk_of_a_stream_is_timed(scripted_triton: Scripted) -> None:
    item = Item("a", script(chunks=3, samples=2400, pause=0.2))
    sample, pcm = spoken(streaming(scripted_triton), item)
    assert sample.failure is None
    assert [round(arrival.seconds, 3) for arrival in sample.arrivals] == [0.1] * 3
    assert sample.second_chunk is not None
    assert 0.2 <= sample.first_audio <= sample.total - 0.3
    assert 0.15 < sample.second_chunk < sample.total - sample.first_audio
    assert 0.05 < sample.underrun < sample.total - sample.first_audio  # 0.2 s in, 0.1 s were there
    assert len(pcm) == 2 * 3 * 2400


def test_a_whole_answer_is_one_chunk(scripted_triton: Scripted) -> None:
    item = Item("a", script(chunks=3, pause=0.1))
    for endpoint in offline(scripted_triton):
        sample, pcm = spoken(endpoint, item)
        assert len(sample.arrivals) == 1
        assert 0.3 <= sample.first_audio <= sample.total
        assert len(pcm) == 2 * 3 * 2400


def test_a_recording_travels_at_16_khz_in_whole_seconds(scripted_triton: Scripted) -> None:
    reference = Reference(base64.b64encode(RECORDING).decode(), "hello")
    item = Item("a", script(echo=True), reference)
    for endpoint in offline(scripted_triton):
        _, pcm = spoken(endpoint, item)
        size, length, total, _ = np.frombuffer(pcm, np.int16) / 32767 * 100_000
        assert size == pytest.approx(16_000, abs=5)
        assert length == pytest.approx(8_000, abs=5)
        assert total == pytest.approx(4_000, rel=0.01)
    own, _ = spoken(streaming(scripted_triton, recordings=False), item)
    assert own.failure is not None
    assert own.failure.kind == "empty"  # the model heard no recording


@pytest.mark.parametrize(
    ("orders", "kind"),
    [
        ({"fail": "INVALID_ARG", "words": "InputError: no"}, "InputError"),
        (
            {"fail": "UNAVAILABLE", "words": "WorkerError: gone", "chunks": 3, "fail_at": 1},
            "WorkerError",
        ),
        ({"chunks": 0}, "empty"),
        ({"pause": 9}, "timeout"),
    ],
)
def test_failures_by_kind(scripted_triton: Scripted, orders: dict[str, Any], kind: str) -> None:
    sample, _ = spoken(streaming(scripted_triton, timeout=0.5), Item("a", script(**orders)))
    assert sample.failure is not None
    assert sample.failure.kind == kind


def run(endpoint: TritonEndpoint, folder: Path, **orders: Any) -> Report:
    source = Single(script(**orders))
    options = BenchOptions(endpoint, ClosedLoop(2), source, 4, folder)
    return asyncio.run(run_bench(options))


def test_a_run_has_figures_audio_and_a_report(scripted_triton: Scripted, tmp_path: Path) -> None:
    report = run(streaming(scripted_triton), tmp_path / "log", chunks=2, pause=0.05)
    assert (report.figures.requests, report.figures.served) == (4, 4)
    assert report.figures.audio_seconds == pytest.approx(0.8)
    names = sorted(file.name for file in (tmp_path / "log").iterdir())
    assert names == ["test-2.wav", "test-3.wav", "test-4.wav", "test.wav"]
    audio = decode(tmp_path / "log" / "test.wav")
    assert (audio.rate, len(audio.samples)) == (24_000, 4800)
    write_report(report, tmp_path / "run.json")
    kept = json.loads((tmp_path / "run.json").read_text())
    assert kept["options"]["endpoint"]["model"] == STREAMING


def test_one_request(scripted_triton: Scripted, tmp_path: Path) -> None:
    file = tmp_path / "a.wav"
    for endpoint in offline(scripted_triton):
        asyncio.run(speak_once(endpoint, Single(script(samples=480)), file))
        assert len(decode(file).samples) == 480
    with pytest.raises(CosyError, match="as you wish"):
        asyncio.run(speak_once(endpoint, Single(script(fail="INTERNAL")), file))
    with pytest.raises(InputError, match="can't be written"):
        asyncio.run(speak_once(endpoint, Single(script()), tmp_path / "no" / "a.wav"))


def test_impossible_endpoints(scripted_triton: Scripted, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not stream over HTTP"):
        TritonEndpoint("localhost", "http", streaming=True)
    with pytest.raises(InputError, match="timeout must be more than 0"):
        TritonEndpoint("localhost", timeout=0)
    with pytest.raises(InputError, match="is no server's address: write HOST:8001"):
        asyncio.run(speak_once(TritonEndpoint("a:99999"), Single("Hi."), tmp_path / "a.wav"))
    with pytest.raises(CosyError, match="a port is at most 65535"):
        asyncio.run(
            speak_once(TritonEndpoint("a:99999", "http"), Single("Hi."), tmp_path / "a.wav")
        )
    for protocol in ("grpc", "http"):
        nobody = TritonEndpoint("127.0.0.1:1", protocol)  # type: ignore[arg-type]
        with pytest.raises(NoServerError, match=r"no server answers.*127\.0\.0\.1:1"):
            asyncio.run(speak_once(nobody, Single("Hi."), tmp_path / "a.wav"))
    other = TritonEndpoint(scripted_triton.grpc, model="spark_tts")
    with pytest.raises(InputError, match="no model 'spark_tts'"):
        asyncio.run(speak_once(other, Single("Hi."), tmp_path / "a.wav"))
    (tmp_path / "bad.wav").write_bytes(b"no audio")
    broken = Single("Hi.", tmp_path / "bad.wav")
    with pytest.raises(InputError, match="the recording of test: "):
        asyncio.run(speak_once(offline(scripted_triton)[0], broken, tmp_path / "a.wav"))
