"""Which voice a name means: stored, shipped, the operator's choice; and a store that fails."""

from __future__ import annotations

import asyncio
import base64
import threading
from pathlib import Path

import pytest

from cosyserve.audio import AudioFormat, encode
from cosyserve.contracts import Voice
from cosyserve.errors import MissingVoiceError, StoreError, VoiceError
from cosyserve.gateway.voices import store_threads
from cosyserve.gateway.voices.known import KnownVoices
from cosyserve.voices.shelves.folder import FolderShelf
from cosyserve.voices.store import VoiceStore
from tests.gateway.serving import Running, serving
from tests.gateway.sine_engine import SineEngine, sine, voice_of
from tests.gateway.voices.test_routes import GOOD, VOICES, add, error
from tests.redis_server import redis_running


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


def test_a_voice_that_comes_while_none_is_removed_is_not_the_models(tmp_path: Path) -> None:
    class Quick(VoiceStore):
        def remove(self, name: str) -> None:
            try:
                super().remove(name)
            finally:
                self.put(name, voice_of(9))

    known = KnownVoices(SineEngine(), Quick(FolderShelf(tmp_path)))
    with pytest.raises(MissingVoiceError, match="no voice named 'ann'"):
        asyncio.run(known.remove("ann"))


def test_a_store_that_hangs_holds_up_nobody_else(server: Running) -> None:
    calls: list[str] = []
    comes_back = threading.Event()

    class Hanging(VoiceStore):
        def find(self, name: str) -> Voice | None:
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
