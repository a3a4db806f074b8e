"""Voices over HTTP: in, out, away."""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from cosyserve.audio import AudioFormat, encode
from cosyserve.settings import Settings
from cosyserve.voices.file import from_bytes, to_bytes
from tests.gateway.serving import Running, serving
from tests.gateway.sine_engine import sine, voice_of

VOICES = "/v1/audio/voices"
RECORDING = encode(sine(48_000), AudioFormat.WAV)


def add(server: Running, name: str, data: bytes = RECORDING, **fields: str) -> httpx.Response:
    form = {"name": name, "consent": "Ada agreed on paper.", **fields}
    return server.http.post(VOICES, data=form, files={"file": ("upload", data)})


def error(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    error: dict[str, Any] = response.json()["error"]
    return error


def test_a_voice_from_birth_to_end(server: Running) -> None:
    born = add(server, "小芳", text="Hum.", language="zh")
    assert born.status_code == 201
    shown = server.http.get(f"{VOICES}/小芳").json()
    assert shown == born.json()
    assert (shown["id"], shown["object"], shown["shipped"]) == ("小芳", "audio.voice", False)
    assert (shown["prompt_text"], shown["prompt_seconds"], shown["language"]) == ("Hum.", 2.0, "zh")
    assert shown["consent"] == "Ada agreed on paper."
    assert "very little for 2.0 s" in shown["warning"]
    listed = {voice["id"]: voice["shipped"] for voice in server.http.get(VOICES).json()["data"]}
    assert listed == {"default": True, "小芳": False}

    assert server.say(voice="小芳").status_code == 200
    assert len(server.engine.requests[0].voice.speech_tokens) == 50

    file = server.http.get(f"{VOICES}/小芳/file")
    assert file.headers["content-disposition"].endswith(".safetensors")
    assert from_bytes(file.content, "answer").content_hash == shown["content_hash"]
    again = add(server, "copy", file.content)
    assert again.status_code == 201
    assert again.json()["content_hash"] == shown["content_hash"]

    for name in ("小芳", "copy"):
        assert server.http.delete(f"{VOICES}/{name}").status_code == 200
        assert error(server.http.get(f"{VOICES}/{name}"), 404)["code"] == "voice_not_found"
        assert error(server.http.delete(f"{VOICES}/{name}"), 404)["code"] == "voice_not_found"


def test_shipped_voices_stay(server: Running) -> None:
    assert error(server.http.delete(f"{VOICES}/default"), 409)["code"] == "voice_is_shipped"
    assert error(add(server, "default"), 409)["code"] == "voice_exists"
    assert server.http.get(f"{VOICES}/default").json()["shipped"]
    assert server.http.get(f"{VOICES}/default/file").status_code == 200


def test_an_openai_name_can_be_given_to_a_voice(server: Running) -> None:
    assert add(server, "alloy").status_code == 201
    server.say(voice="alloy")
    assert len(server.engine.requests[0].voice.speech_tokens) == 50
    assert server.http.delete(f"{VOICES}/alloy").status_code == 200


@pytest.mark.parametrize("consent", ["", "  "])
def test_nobody_is_cloned_without_consent(server: Running, consent: str) -> None:
    assert error(add(server, "ada", consent=consent), 400)["param"] == "consent"


@pytest.mark.parametrize("name", ["", "..", "a/b", "a" * 65, "a b"])
def test_names_that_are_none(server: Running, name: str) -> None:
    error(add(server, name), 400)


OTHER = to_bytes(voice_of(50, fingerprint="another"))
GOOD = to_bytes(voice_of(50))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        np.random.default_rng(0).bytes(50_000),
        RECORDING[:2000],
        encode(sine(1000), AudioFormat.WAV),  # too short to learn from
        OTHER,
        to_bytes(replace(voice_of(50), embedding=np.ones(80, np.float32))),
        to_bytes(replace(voice_of(50), mel=np.zeros((100, 100), np.float32))),
        to_bytes(replace(voice_of(50), speech_tokens=np.full(50, 6561, np.int32))),
        GOOD[:-7],
        GOOD[:-7] + b"\x7f" * 7,
        b"\xff" * 8 + b"{" + b"[" * 10_000,
        len(b"[" * 100_000).to_bytes(8, "little") + b"{" + b"[" * 100_000,
    ],
)
def test_hostile_uploads(server: Running, data: bytes) -> None:
    assert error(add(server, "mallory", data), 400)["message"]
    assert server.http.get(f"{VOICES}/mallory").status_code == 404


def test_a_damaged_file_is_not_a_missing_one(server: Running) -> None:
    add(server, "rotten")
    (server.folder / "rotten.safetensors").write_bytes(b"rot")
    refused = error(server.say(voice="rotten"), 400)
    assert refused["code"] == "invalid_voice"
    assert refused["message"].startswith("voice 'rotten': not a voice file")
    assert server.http.delete(f"{VOICES}/rotten").status_code == 200


def test_what_the_store_cannot_do_is_told_without_its_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "store" / "dir.safetensors").mkdir(parents=True)
    with serving(store=str(tmp_path / "file")) as server:
        (tmp_path / "file").write_bytes(b"")
        refused = error(add(server, "ann", GOOD), 503)
        assert refused["message"] == "the voice store can't be used now: try again later"
    assert f"{tmp_path}/file/ann.safetensors: can't be written: " in caplog.text
    with serving(store=str(tmp_path / "store")) as server:
        assert error(server.say(voice="dir"), 400)["message"] == "'dir': not a file"


def test_many_who_want_one_name(server: Running) -> None:
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: add(server, "twin", GOOD).status_code, range(8)))
    assert sorted(answers) == [201] + [409] * 7
    assert server.http.delete(f"{VOICES}/twin").status_code == 200


def test_a_recording_in_a_request_needs_consent_where_the_operator_wants_it() -> None:
    recording = base64.b64encode(RECORDING).decode()
    with serving(settings=Settings(require_consent=True)) as server:
        for consent in ("", "  "):
            refused = error(server.say(ref_audio=recording, consent=consent), 400)
            assert (refused["code"], refused["param"]) == ("consent_required", "consent")
        assert error(server.say(ref_audio=recording, consent="cons_1"), 400)["param"] == "consent"
        assert server.engine.embedded == 0
        wave = {
            "name": "reference_wav",
            "datatype": "FP32",
            "shape": [1, 8000],
            "data": [0.1] * 8000,
        }
        text = {"name": "target_text", "datatype": "BYTES", "shape": [1, 1], "data": ["Hello."]}
        infer = server.http.post("/v2/models/sine/infer", json={"inputs": [wave, text]})
        assert error(infer, 400)["code"] == "consent_required"
        assert server.say(ref_audio=recording, consent="Ada agreed.").status_code == 200
        assert server.engine.requests[0].voice.consent == "Ada agreed."
        assert error(server.say(ref_audio=recording), 400)["code"] == "consent_required"
        assert server.say().status_code == 200


@pytest.mark.parametrize("form", ["{}", "data:audio/wav;base64,{}"])
def test_a_voice_in_json(server: Running, form: str) -> None:
    recording = form.format(base64.b64encode(RECORDING).decode())
    body = {"name": "Ada L.", "audio_sample": recording, "ref_text": "Hum.", "language": None}
    refused = server.http.post(VOICES, json=body)
    assert error(refused, 400)["param"] == "consent"
    born = server.http.post(VOICES, json=body | {"consent": "Ada agreed.", "type": "audio_sample"})
    assert born.status_code == 201, born.text
    assert (born.json()["id"], born.json()["prompt_text"]) == ("Ada-L.", "Hum.")
    assert server.say(voice="Ada-L.").status_code == 200
    assert server.http.delete(f"{VOICES}/Ada-L.").status_code == 200


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"audio_sample": "no base64!"}, "audio_sample"),
        ({"audio_sample": 5}, "audio_sample"),
        ({}, "file"),
        ({"type": "prompt", "prompt": "A deep voice."}, "type"),
    ],
)
def test_json_that_is_no_voice(server: Running, body: dict[str, Any], param: str) -> None:
    asked = {"name": "ada", "consent": "Ada agreed."} | body
    assert error(server.http.post(VOICES, json=asked), 400)["param"] == param
    for nonsense in (b"[]", b"5", b"{"):
        headers = {"Content-Type": "application/json"}
        error(server.http.post(VOICES, content=nonsense, headers=headers), 400)
