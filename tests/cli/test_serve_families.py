"""`cosyserve serve` with a model of each family: what clients hear of either."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import openai
import pytest

from cosyserve.audio import AudioFormat, decode, encode
from tests.cli.test_serve import TEXT, speech
from tests.gateway.talking import talking
from tests.serving import served

EACH = pytest.mark.parametrize("model", ["test", "cosyvoice3"])


@pytest.fixture(scope="module")
def url(
    tmp_path_factory: pytest.TempPathFactory, native3_folder: Path, programs: Path
) -> Iterator[str]:
    models = ("--model", "test", "--model", str(native3_folder))
    home, python = tmp_path_factory.mktemp("home"), programs / "python"
    with served(home, *models, python=python) as (url, _):
        yield url


@EACH
def test_the_openai_client_hears_speech(url: str, model: str) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    whole = client.audio.speech.create(
        model=model, voice="alloy", input=TEXT, response_format="wav"
    ).content
    assert decode(whole).rate == 24_000
    parts = []
    with client.audio.speech.with_streaming_response.create(
        model=model, voice="default", input=TEXT * 2, response_format="pcm"
    ) as response:
        parts += list(response.iter_bytes())
    assert len(parts) > 1
    assert sum(map(len, parts)) % 960 == 0


@EACH
def test_the_same_seed_is_the_same_speech(url: str, model: str) -> None:
    first, again, other = (speech(url, model=model, seed=seed).content for seed in (3, 3, 4))
    assert first == again != other


@EACH
def test_events_have_the_audio_and_the_times_of_words(url: str, model: str) -> None:
    plain = speech(url, model=model, seed=3).content
    answer = speech(url, model=model, seed=3, stream_format="sse", timestamps="word")
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line]
    audio = [base64.b64decode(event["audio"]) for event in events if "audio" in event]
    assert len(audio) > 1
    assert b"".join(audio) == plain
    words = [word for event in events for word in event.get("words", [])]
    assert words == TEXT.split()[: len(words)]  # random weights may end before the text does
    assert len(words) > 4
    assert events[-1]["type"] == "speech.audio.done"


@EACH
def test_a_voice_is_uploaded_used_and_removed(url: str, model: str) -> None:
    noise = np.random.default_rng(0).standard_normal(2 * 24_000).astype(np.float32) * 0.1
    file = {"file": ("me.flac", encode(noise, AudioFormat.FLAC))}
    form = {"name": "anna", "consent": "Anna, by mail", "text": "Words.", "model": model}
    voices = f"{url}/v1/audio/voices"
    assert httpx.post(voices, data=form, files=file, timeout=60).status_code == 201
    hers, told = (
        speech(url, model=model, voice="anna", instructions=words) for words in ("", "Softly.")
    )
    assert hers.status_code == told.status_code == 200
    assert hers.content != told.content != speech(url, model=model).content
    assert httpx.delete(f"{voices}/anna").status_code == 200
    assert speech(url, model=model, voice="anna").status_code == 404


@EACH
def test_text_in_pieces_sounds_the_same_however_it_is_cut(url: str, model: str) -> None:
    with talking(url) as talk:
        at_once, words, letters = (
            talk.say(*pieces, model=model, seed=3)
            for pieces in ([TEXT], re.findall(r"\S+\s*", TEXT), TEXT)
        )
    assert len(at_once.frames) > 1
    assert at_once.audio == words.audio == letters.audio
    assert at_once.last["usage"] == letters.last["usage"]
    assert at_once.last["usage"]["input_tokens"] > 5


@EACH
def test_audio_comes_before_the_text_is_over(url: str, model: str) -> None:
    with talking(url) as talk:
        talk.start(model=model, instructions="Softly.")
        talk.hear("started")
        talk.text(TEXT * 3)
        assert isinstance(talk.socket.recv(timeout=20), bytes)
        talk.text(TEXT)
        talk.send("end")
        assert talk.hear().last["type"] == "done"


def test_figures_are_of_each_model(url: str) -> None:
    figures = httpx.get(f"{url}/metrics").text
    names = re.findall(r'^cosyserve_ready\{model="(.*)"\} 1.0$', figures, re.MULTILINE)
    listed = [model["id"] for model in httpx.get(f"{url}/v1/models").json()["data"]]
    assert names == listed
    assert names[0] == "test"
