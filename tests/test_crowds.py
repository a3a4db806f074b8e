"""Many at once: whoever leaves takes everything along; whoever is too many is told at once."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import httpx
import openai
import pytest

from benchmarks.memory import leaving
from tests.serving import served

pytestmark = pytest.mark.usefixtures("forked")

TEXT = "The quick brown fox jumps over the lazy dog."


def test_clients_that_leave_at_random_points_leave_nothing_behind() -> None:
    """Open requests, sessions, slots, bytes of tensors and files, to the unit.

    In a process of its own: what other tests have left to the garbage collector is not counted.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        figures = pool.submit(leaving, clients=60).result()
    left = {figure.name: figure.value for figure in figures}
    assert left == dict.fromkeys(left, 0)
    assert len(left) == 5


def test_too_many_are_refused_and_the_others_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSYSERVE_SLOTS", "2")
    monkeypatch.setenv("COSYSERVE_WAITING", "2")
    body = {"model": "test", "input": TEXT, "response_format": "pcm"}
    with served(tmp_path) as (url, _), ThreadPoolExecutor(16) as pool:

        def ask(_: int) -> int:
            answer = httpx.post(f"{url}/v1/audio/speech", json=body, timeout=60)
            if answer.status_code == 429:
                assert int(answer.headers["retry-after"]) >= 1
                assert answer.json()["error"]["code"] == "overloaded"
            return answer.status_code

        assert set(pool.map(ask, range(4))) == {200}  # a full house
        assert set(pool.map(ask, range(48))) == {200, 429}
        assert httpx.get(f"{url}/ready").status_code == 200
        assert ask(0) == 200


def test_two_devices_and_a_key(tmp_path: Path) -> None:
    devices = ("--lm-device", "cpu", "--token2wav-device", "cpu")
    with served(tmp_path, *devices, "--api-key", "secret") as (url, _):
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="secret", max_retries=0)
        fields = {"model": "tts-1", "voice": "alloy", "input": TEXT, "response_format": "pcm"}
        assert len(client.audio.speech.create(**fields).content) > 24_000
        with pytest.raises(openai.AuthenticationError):
            client.with_options(api_key="other").audio.speech.create(**fields)
