"""The original's client_http.py, byte for byte on the wire, is answered by the gateway."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from cosyserve.contracts import Floats, Mode
from cosyserve.settings import Settings
from tests.gateway.serving import Running, serving
from tests.gateway.sine_engine import sine

RECORDING = sine(24_000)[:16_000]
TEXT = "Hello there."


def body(recording: Floats = RECORDING, text: str = TEXT) -> dict[str, Any]:
    """As the client makes it: samples and their count nested, texts flat."""
    samples = recording.reshape(1, -1).astype(np.float32)
    return {
        "inputs": [
            _input("reference_wav", list(samples.shape), "FP32", samples.tolist()),
            _input("reference_wav_len", [1, 1], "INT32", [[len(recording)]]),
            _input("reference_text", [1, 1], "BYTES", ["What I say."]),
            _input("target_text", [1, 1], "BYTES", [text]),
        ]
    }


def _input(name: str, shape: list[int], datatype: str, data: list[Any]) -> dict[str, Any]:
    return {"name": name, "shape": shape, "datatype": datatype, "data": data}


def infer(server: Running, sent: Any, model: str = "cosyvoice2") -> httpx.Response:
    return server.http.post(
        f"/v2/models/{model}/infer",
        headers={"Content-Type": "application/json"},
        json=sent,
        params={"request_id": "0"},
    )


@pytest.mark.parametrize("name", ["cosyvoice2", "cosyvoice2_dit", "cosyvoice3"])
def test_the_originals_client_gets_its_waveform(server: Running, name: str) -> None:
    answer = infer(server, body(), name)
    assert answer.status_code == 200, answer.text
    result = answer.json()
    audio = np.array(result["outputs"][0]["data"], dtype=np.float32)
    assert np.array_equal(audio, server.engine.samples)
    assert result["outputs"][0]["shape"] == [1, len(audio)]
    assert (result["model_name"], result["outputs"][0]["name"]) == (name, "waveform")
    (request,) = server.engine.requests
    assert (request.text, request.mode, request.stream) == (TEXT, Mode.ZERO_SHOT, False)
    assert (len(request.voice.speech_tokens), request.voice.prompt_text) == (25, "What I say.")


def test_a_recording_is_learned_once_without_its_padding(server: Running) -> None:
    sent = body(sine(20_000))
    padded = body(sine(20_000))
    padded["inputs"][0] = _input("reference_wav", [1, 30_000], "FP32", [0.0] * 30_000)
    padded["inputs"][0]["data"][:20_000] = sine(20_000).tolist()  # flat is allowed, too
    for one in (sent, sent, padded):
        assert infer(server, one).status_code == 200
    assert server.engine.embedded == 1


@pytest.mark.parametrize("voice", [[], [_input("voice_id", [1, 1], "BYTES", [["default"]])]])
def test_without_a_recording_the_default_voice_speaks(server: Running, voice: list[Any]) -> None:
    sent = {"inputs": [body()["inputs"][3], *voice]}
    assert infer(server, sent, "sine").status_code == 200
    assert server.engine.requests[0].voice is server.engine.voices["default"]
    server.behave(voices={})
    refused = infer(server, sent)
    assert refused.status_code == 400
    assert "no voice of its own" in refused.text


def test_the_servers_lexicon_is_for_its_requests_too(tmp_path: Path) -> None:
    file = tmp_path / "lexicon.json"
    file.write_text('{"nginx": "engine x"}', "utf-8")
    with serving(settings=Settings(lexicon=str(file))) as running:
        assert infer(running, body()).status_code == 200
        (request,) = running.engine.requests
    assert request.lexicon == {"nginx": "engine x"}


def changed(place: int, **fields: Any) -> dict[str, Any]:
    sent = body()
    sent["inputs"][place] |= fields
    return sent


@pytest.mark.parametrize(
    ("sent", "status", "words"),
    [
        ({}, 400, "inputs"),
        ({"inputs": []}, 400, "inputs"),
        ({"inputs": [body()["inputs"][0]]}, 400, "target_text holds nothing"),
        (changed(3, data=["  "]), 400, "target_text holds nothing"),
        (changed(3, data=["a" * 5000]), 400, "target_text has 5000 characters"),
        (changed(3, data=[1]), 400, "target_text: one text"),
        (changed(3, data=["a", "b"]), 400, "target_text: one text"),
        (changed(3, name="text"), 400, "target_text"),
        (changed(2, data=[["a", "b"]]), 400, "reference_text: one text"),
        (changed(2, data=["a" * 4097]), 400, "reference_text has 4097 characters"),
        (changed(1, data=[[99_999]]), 400, "1..16000"),
        (changed(1, data=[[0]]), 400, "1..16000"),
        (changed(1, data=[]), 400, "reference_wav_len"),
        (changed(0, data=[["x"]]), 400, "reference_wav: one row of numbers"),
        (changed(0, data=[[1.0], [1.0, 2.0]]), 400, "reference_wav: one row of numbers"),
        (changed(0, data=[[1e300] * 16_000]), 400, "finite"),
        (changed(1, data=[[100]]), 400, "0.5 s"),
    ],
)
def test_what_is_wrong_is_named(server: Running, sent: Any, status: int, words: str) -> None:
    answer = infer(server, sent)
    assert (answer.status_code, server.engine.sessions) == (status, 0)
    assert words in answer.json()["error"]["message"]


def test_other_models_are_not_here(server: Running) -> None:
    answer = infer(server, body(), "spark_tts")
    assert answer.status_code == 404
    assert "sine" in answer.json()["error"]["message"]


def test_half_an_answer_is_no_json(server: Running) -> None:
    server.behave(error=RuntimeError("broken"), error_at=2)
    with pytest.raises(httpx.RemoteProtocolError):
        infer(server, body())
    server.behave(poison=True)
    assert infer(server, body()).status_code == 500
    server.behave(chunks=1, chunk_tokens=0)
    assert json.loads(infer(server, body()).content)["outputs"][0]["data"] == []
