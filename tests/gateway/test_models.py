"""Several models behind one gateway, each with its engine and its voices."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from websockets.sync.client import connect

from cosyserve.audio import AudioFormat, encode
from cosyserve.contracts import ModelInfo, Recording, Voice, VoiceFormat
from cosyserve.errors import InputError, OverloadError
from cosyserve.gateway.models import Models
from cosyserve.gateway.policy import Policy
from cosyserve.gateway.voices.known import KnownVoices
from cosyserve.voices.file import to_bytes
from cosyserve.voices.store import open_store
from tests.gateway.serving import Running, serving
from tests.gateway.sine_engine import SineEngine, sine, voice_of

OWN = voice_of(0, family="three", fingerprint="f3", name="own")
RECORDING = encode(sine(24_000), AudioFormat.WAV)


class ThirdEngine(SineEngine):
    """Of another family, with voices of its own."""

    @property
    def model(self) -> ModelInfo:
        return ModelInfo("three", VoiceFormat("three", "f3"), True, {"default": OWN, "own": OWN})

    async def embed(self, recording: Recording) -> Voice:
        return replace(await super().embed(recording), family="three", fingerprint="f3")


@pytest.fixture(scope="module")
def three() -> ThirdEngine:
    return ThirdEngine()


@pytest.fixture(scope="module")
def both(three: ThirdEngine) -> Iterator[Running]:
    with serving(others=[three]) as running:
        yield running


def test_all_are_listed_and_found(both: Running) -> None:
    listed = both.http.get("/v1/models").json()["data"]
    assert [model["id"] for model in listed] == ["sine", "three"]
    assert both.http.get("/v1/models/three").json()["description"] == "three"
    models = both.http.get("/v1/audio/models").json()["models"]
    assert [model["id"] for model in models] == ["sine", "three"]
    voices = both.http.get("/v1/audio/voices").json()["data"]
    assert [voice["id"] for voice in voices] == ["default", "own"]


def test_voices_are_listed_by_model(both: Running) -> None:
    def listed(model: str) -> list[str]:
        answer = both.http.get("/v1/audio/voices", params={"model": model}).json()
        return [voice["id"] for voice in answer["data"]]

    (both.folder / "stored.safetensors").write_bytes(to_bytes(voice_of(25, "Hi.")))
    assert listed("") == listed("three") == ["default", "own", "stored"]
    assert listed("sine") == listed("tts-1") == ["default", "stored"]
    refused = both.http.get("/v1/audio/voices", params={"model": "four"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")
    (both.folder / "stored.safetensors").unlink()


def test_a_default_that_came_with_one_is_not_the_others(tmp_path: Path) -> None:
    engines = [SineEngine(voices={name: voice_of(0)}) for name in ("one", "other")]
    voices = KnownVoices(Models(engines), open_store(str(tmp_path)), default_voice="one")
    listed = [asyncio.run(voices.names(engine.model)) for engine in engines]
    assert [list(names) for names in listed] == [["one", "default"], ["other"]]


def test_the_request_chooses(both: Running, three: ThirdEngine) -> None:
    before, others = both.engine.sessions, three.sessions
    assert both.say(model="three").status_code == 200
    assert (both.engine.sessions, three.sessions) == (before, others + 1)
    assert three.requests[-1].voice is OWN
    for name in ("sine", "tts-1", ""):
        assert both.say(model=name).status_code == 200
    assert (both.engine.sessions, three.sessions) == (before + 3, others + 1)
    assert both.engine.requests[-1].voice.family == "sine"


def test_a_name_that_is_not_served_is_told_those_that_are(both: Running) -> None:
    refused = both.say(model="four")
    assert refused.status_code == 404
    error = refused.json()["error"]
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "this server runs 'sine' and 'three'" in error["message"]


def test_a_websocket_and_a_batch_choose_too(both: Running, three: ThirdEngine) -> None:
    others = three.sessions
    with connect(f"ws://127.0.0.1:{both.port}/v1/audio/speech/stream") as socket:
        socket.send(json.dumps({"type": "start", "model": "three", "response_format": "pcm"}))
        socket.send(json.dumps({"type": "text", "text": "Hello."}))
        socket.send(json.dumps({"type": "end"}))
        for message in socket:
            if isinstance(message, str) and json.loads(message)["type"] == "done":
                break
    items = [{"input": "One.", "model": "three"}, {"input": "Two.", "model": "sine"}]
    answer = both.http.post("/v1/audio/speech/batch", json={"items": items}).json()
    assert answer["succeeded"] == 2, answer
    assert three.sessions == others + 2


def test_a_voice_that_came_with_one_is_not_the_others(both: Running) -> None:
    assert both.say(model="three", voice="own").status_code == 200
    refused = both.say(model="sine", voice="own")
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "voice_not_found")


def test_a_recording_is_heard_by_the_model_that_is_named(both: Running, three: ThirdEngine) -> None:
    for model in ("sine", "three"):
        added = both.http.post(
            "/v1/audio/voices",
            data={"name": f"of-{model}", "consent": "Ada agreed.", "model": model, "text": "Hi."},
            files={"file": ("a.wav", RECORDING)},
        )
        assert added.status_code == 201, added.text
        assert added.json()["family"] == model
        assert both.say(model=model, voice=f"of-{model}").status_code == 200
    assert three.requests[-1].voice.family == "three"
    given = to_bytes(voice_of(30, family="three", fingerprint="f3"))
    added = both.http.post(
        "/v1/audio/voices",
        data={"name": "file", "consent": "Ada agreed."},
        files={"file": ("a.safetensors", given)},
    )
    assert added.status_code == 201, added.text


def test_a_voice_that_kept_its_recording_is_made_anew(both: Running, three: ThirdEngine) -> None:
    kept = replace(voice_of(25, "Hi."), source=sine(24_000), source_rate=24_000, consent="Yes.")
    (both.folder / "kept.safetensors").write_bytes(to_bytes(kept))
    heard = three.embedded
    for _ in range(2):
        assert both.say(model="three", voice="kept").status_code == 200
        spoken = three.requests[-1].voice
        assert (spoken.family, spoken.prompt_text, spoken.consent) == ("three", "Hi.", "Yes.")
    assert three.embedded == heard + 1, "it is remembered"
    assert both.say(model="sine", voice="kept").status_code == 200
    assert both.engine.requests[-1].voice.family == "sine"


def test_the_original_names_a_family() -> None:
    class Two(SineEngine):
        @property
        def model(self) -> ModelInfo:
            return replace(super().model, name="two", voice_format=VoiceFormat("cosyvoice2"))

    models = Models([SineEngine(), Two()])
    assert models.of_family("cosyvoice2").model.name == "two"
    assert models.of_family("cosyvoice3").model.name == "sine"


def test_ready_is_when_all_are(both: Running, three: ThirdEngine) -> None:
    assert both.http.get("/ready").status_code == 200
    three.ready = False
    assert both.http.get("/ready").status_code == 503
    assert figures(both)["cosyserve_ready"] == {"sine": 1, "three": 0}
    three.ready = True


def figures(server: Running) -> dict[str, dict[str, float]]:
    """Metrics by their name and model, all of a name and model together."""
    server.wait_until_idle()
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for family in text_string_to_metric_families(server.http.get("/metrics").text):
        for sample in family.samples:
            model = sample.labels.get("model") or sample.labels["model_name"]
            found[sample.name][model] += sample.value
    return found


def test_metrics_are_of_the_model_that_speaks(three: ThirdEngine) -> None:
    with serving(others=[three]) as server:
        for model in ("sine", "three", "three", "four"):
            server.say(model=model)
        three.error = OverloadError("full", 1.0)
        server.say(model="three")
        three.error = None
        metrics = figures(server)
    for name in ("cosyserve_first_audio_seconds_count", "vllm_omni:audio_ttfp_s_count"):
        assert metrics[name] == {"sine": 1, "three": 2}
    assert metrics["cosyserve_audio_seconds_total"] == {"sine": 1.6, "three": 3.2}
    assert metrics["cosyserve_slots"] == {"sine": 8, "three": 8}
    assert metrics["cosyserve_stage_seconds_total"] == {"sine": 2, "three": 2}
    assert metrics["cosyserve_refusals_total"] == {"three": 1, "sine,three": 1}
    assert metrics["cosyserve_connections"] == {"sine,three": 0}
    assert metrics["cosyserve_request_seconds_count"] == {"sine": 1, "three": 3, "sine,three": 1}


def test_folders_are_names_and_one_name_is_one_model() -> None:
    models = Models([SineEngine(), ThirdEngine()], [str(Path("/models/a")), "b"])
    policy = Policy()
    assert models.named("a", policy).model.name == "sine"
    assert models.named("/models/a", policy).model.name == "sine"
    assert models.named("b", policy).model.name == "three"
    models.check_names()
    with pytest.raises(InputError, match="two models are named 'sine'"):
        Models([SineEngine(), SineEngine()]).check_names()
