"""Voices over HTTP: in, out, away."""

from __future__ import annotations

import asyncio
import base64
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from cosyserve.audio import AudioFormat, encode
from cosyserve.contracts import Voice
from cosyserve.errors import StoreError, VoiceError
from cosyserve.gateway.voices import store_threads
from cosyserve.gateway.voices.known import KnownVoices
from cosyserve.settings import Settings
from cosyserve.voices.file import from_bytes, to_bytes
from cosyserve.voices.shelves.folder import FolderShelf
from cosyserve.voices.store import VoiceStore
from tests.gateway.serving import Running, serving
from tests.gateway.sine_engine import SineEngine, sine, voice_of
from tests.redis_server import redis_running

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
    assert error(server.say(voice="rotten"), 400)["code"] == "invalid_voice"
    assert server.http.delete(f"{VOICES}/rotten").status_code == 200


def test_many_who_want_one_name(server: Running) -> None:
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: add(server, "twin", GOOD).status_code, range(8)))
    assert sorted(answers) == [201] + [409] * 7
    assert server.http.delete(f"{VOICES}/twin").status_code == 200


def test_a_stored_voice_wins_but_not_over_default(server: Running) -> None:
    add(server, "mine")
    (server.folder / "default.safetensors").write_bytes(GOOD)
    assert server.say(voice="default").status_code == 200
    assert not server.engine.requests[-1].voice.speech_tokens.size
    shown = server.http.get(f"{VOICES}/default").json()
    assert shown["shipped"]
    assert error(server.http.delete(f"{VOICES}/default"), 409)["code"] == "voice_is_shipped"
    (server.folder / "default.safetensors").unlink()
    server.http.delete(f"{VOICES}/mine")


def test_a_model_without_a_voice_is_ready_and_says_how_to_get_one(server: Running) -> None:
    server.behave(voices={})
    assert server.http.get("/ready").status_code == 200
    assert server.http.get(VOICES).json()["data"] == []
    for name in ("default", "alloy"):
        refused = error(server.say(voice=name), 400)
        assert refused["code"] == "invalid_voice"
        for way in ("voice add", "spk2info.pt", "--default-voice", "reference_audio"):
            assert way in refused["message"]
    assert error(server.http.get(f"{VOICES}/default"), 400)["code"] == "invalid_voice"
    recording = base64.b64encode(encode(sine(36_000), AudioFormat.WAV)).decode()
    assert server.say(reference_audio=recording).status_code == 200


def test_openais_names_are_different_voices_of_the_model(server: Running) -> None:
    voices = {name: voice_of(n) for n, name in enumerate(("default", "001", "am_onyx", "xiaohe"))}
    server.behave(voices=voices)
    for name in ("alloy", "ash", "ballad", "cedar", "onyx", "nova"):
        assert server.say(voice=name).status_code == 200
    spoken = [len(request.voice.speech_tokens) for request in server.engine.requests]
    assert spoken == [1, 3, 2, 1, 2, 1]
    server.behave(voices={"default": voice_of(0), "001": voice_of(1)})
    server.say(voice="ash")
    assert server.engine.requests[0].voice is server.engine.voices["default"]


def test_the_names_are_listed_as_clients_read_them(server: Running) -> None:
    server.behave(voices={"default": voice_of(0), "ada": voice_of(1)})
    listed = server.http.get(VOICES).json()
    assert [voice["id"] for voice in listed["data"]] == ["ada", "default"]
    assert {v["id"]: v["name"] for v in listed["voices"]} == {"ada": "ada", "default": "default"}
    models = server.http.get("/v1/audio/models").json()
    assert [model["id"] for model in models["models"]] == ["sine"]


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


def test_the_operator_says_which_voice_default_is(tmp_path: Path) -> None:
    store = VoiceStore(FolderShelf(tmp_path))
    store.put("ann", voice_of(9))
    store.put("bob", voice_of(9, fingerprint="f2"))
    with serving(SineEngine(voices={}), store=str(tmp_path), default_voice="ann") as server:
        assert server.say().status_code == server.say(voice="alloy").status_code == 200
        assert [len(r.voice.speech_tokens) for r in server.engine.requests] == [9, 9]
        shown = server.http.get(f"{VOICES}/default").json()
        assert (shown["shipped"], shown["prompt_seconds"]) == (False, 9 / 25)
        assert error(server.http.delete(f"{VOICES}/default"), 409)["code"] == "voice_is_shipped"
        assert error(server.http.delete(f"{VOICES}/ann"), 409)["code"] == "voice_is_default"
        store.remove("ann")  # by somebody else
        assert server.say().status_code == 200  # it was read at the start
    for name, complaint in (
        ("carl", "'carl': there is no such voice; known: "),
        ("bob", "another"),
    ):
        with pytest.raises(VoiceError, match=complaint):
            KnownVoices(SineEngine(), store, name)


def test_a_store_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    with redis_running(tmp_path) as redis, serving(store=redis.url) as server:
        assert add(server, "ann", GOOD).status_code == 201
        assert server.say(voice="ann").status_code == 200
        redis.end()
        for answer in (
            server.say(voice="ann"),
            server.http.get(VOICES),
            server.http.get(f"{VOICES}/ann"),
            server.http.delete(f"{VOICES}/ann"),
            add(server, "bea", GOOD),
        ):
            assert error(answer, 503)["code"] == "voice_store_unavailable"
            assert answer.headers["retry-after"] == "1"
        assert server.say(voice="default").status_code == 200
        assert server.http.get("/ready").status_code == 200
        redis.start()
        assert error(server.say(voice="bea"), 404)["code"] == "voice_not_found"
        assert add(server, "bea", GOOD).status_code == 201
        assert server.say(voice="bea").status_code == 200


def test_a_store_that_hangs_holds_up_nobody_else(server: Running) -> None:
    calls: list[str] = []
    comes_back = threading.Event()

    class Hanging(VoiceStore):
        def get(self, name: str) -> Voice:
            calls.append(name)
            comes_back.wait()
            raise AssertionError

    async def story() -> None:
        known = KnownVoices(server.engine, Hanging(FolderShelf(Path())))
        answers = await asyncio.gather(
            *(known.get("ann") for _ in range(20)), return_exceptions=True
        )
        assert {type(answer) for answer in answers} == {StoreError}
        assert calls == ["ann"] * store_threads.THREADS  # all of which still hang
        assert await known.get("default")
        await asyncio.to_thread(lambda: None)  # the threads that encode are free

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_threads, "SECONDS", 0.3)
        try:
            asyncio.run(story())
        finally:
            comes_back.set()


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
