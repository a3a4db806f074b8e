"""Speech with the voices of people is marked on every way out, the model's own is not."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from cosyserve.audio import AudioFormat, encode
from cosyserve.audio.watermark import Watermark, WatermarkStream
from cosyserve.contracts import Floats
from cosyserve.settings import Settings
from tests.gateway.original.test_http import ask as ask_original
from tests.gateway.original.test_kserve import body, infer
from tests.gateway.serving import Running, serving
from tests.gateway.speech.test_batch import ask as ask_batch
from tests.gateway.talking import talking
from tests.gateway.voices.test_routes import RECORDING, add

KEY = "the key of this server"


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with serving(settings=Settings(watermark_key=KEY), legacy=True) as running:
        assert add(running, "ada").status_code == 201
        yield running


def marked(samples: Floats) -> Floats:
    return WatermarkStream(Watermark.of(KEY)).push(samples)


def over_http(server: Running) -> bytes:
    return server.say(voice="ada", response_format="pcm").content


def by_a_recording(server: Running) -> bytes:
    recording = base64.b64encode(RECORDING).decode()
    return server.say(ref_audio=recording, response_format="pcm").content


def in_a_batch(server: Running) -> bytes:
    (result,) = ask_batch(server, {"input": "Hello."}, voice="ada").json()["results"]
    return base64.b64decode(result["audio_data"])


def on_a_websocket(server: Running) -> bytes:
    with talking(server.url) as talk:
        return talk.say("Hello", " you.", voice="ada").audio


def as_the_original(server: Running) -> bytes:
    return ask_original(server, "cross_lingual", wav=RECORDING).content


def as_triton(server: Running) -> bytes:
    (output,) = infer(server, body()).json()["outputs"]
    return encode(np.array(output["data"], np.float32), AudioFormat.PCM)


@pytest.mark.parametrize(
    "way",
    [over_http, by_a_recording, in_a_batch, on_a_websocket, as_the_original, as_triton],
)
def test_every_way_out(server: Running, way: Callable[[Running], bytes]) -> None:
    assert way(server) == encode(marked(server.engine.samples), AudioFormat.PCM)


def test_the_models_own_voice_is_as_it_was_made(server: Running) -> None:
    for voice in ("default", "alloy"):
        heard = server.say(voice=voice, response_format="f32").content
        assert np.array_equal(np.frombuffer(heard, "<f4"), server.engine.samples)


def test_the_audit_says_what_is_marked(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cosyserve.audit")
    server.say(voice="ada")
    with serving() as other:
        add(other, "ada")
        heard = other.say(voice="ada", response_format="f32").content
        assert np.array_equal(np.frombuffer(heard, "<f4"), other.engine.samples)
    audit = [record for record in caplog.records if record.name == "cosyserve.audit"]
    lines = [json.loads(record.getMessage()) for record in audit]
    spoken = [line["watermark"] for line in lines if line["audit"] == "voice.spoken"]
    assert spoken == [True, False]
    assert all("watermark" not in line for line in lines if line["audit"] != "voice.spoken")
    assert KEY not in caplog.text
