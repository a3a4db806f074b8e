"""The voices of people: a line when one is learned, stored, spoken with, removed; no text in it."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator

import pytest

from tests.gateway.serving import Running, serving
from tests.gateway.talking import talking
from tests.gateway.voices.test_routes import RECORDING, add

AUDIT = "cosyserve.audit"
Lines = list[dict[str, str]]


def audited(caplog: pytest.LogCaptureFixture) -> Lines:
    lines = [json.loads(r.message) for r in caplog.records if r.name == AUDIT]
    caplog.clear()
    return lines


@pytest.fixture
def guarded(caplog: pytest.LogCaptureFixture) -> Iterator[Running]:
    caplog.set_level(logging.INFO, "cosyserve")
    with serving(keys=["a-key"]) as server:
        server.http.headers["Authorization"] = "Bearer a-key"
        yield server


def test_a_stored_voice(guarded: Running, caplog: pytest.LogCaptureFixture) -> None:
    assert add(guarded, "ada", RECORDING).status_code == 201
    learned, stored = audited(caplog)
    assert (learned["audit"], stored["audit"]) == ("voice.learned", "voice.stored")
    assert stored["voice"] == "ada"
    assert stored["client"] == "key 0"
    assert stored["consent"]

    answer = guarded.say(voice="ada", input="A secret text.")
    (spoken,) = audited(caplog)
    assert spoken["audit"] == "voice.spoken"
    assert spoken["request_id"] == answer.headers["x-request-id"]
    assert spoken["voice_hash"] == learned["voice_hash"]
    assert "secret" not in str(spoken)
    with talking(guarded.url, additional_headers={"Authorization": "Bearer a-key"}) as talk:
        talk.say("Another text.", voice="ada")
    assert [line["audit"] for line in audited(caplog)] == ["voice.spoken"]

    guarded.http.delete("/v1/audio/voices/ada")
    (removed,) = audited(caplog)
    assert (removed["audit"], removed["voice"]) == ("voice.removed", "ada")


def test_a_recording_in_a_request(guarded: Running, caplog: pytest.LogCaptureFixture) -> None:

    recording = base64.b64encode(RECORDING).decode()
    for _ in range(2):
        assert guarded.say(ref_audio=recording, consent="Ada agreed.").status_code == 200
    lines = audited(caplog)
    assert [line["audit"] for line in lines] == ["voice.learned", "voice.spoken", "voice.spoken"]
    assert {line["consent"] for line in lines} == {"Ada agreed."}


def test_the_models_own_voices_are_nobodys(
    guarded: Running, caplog: pytest.LogCaptureFixture
) -> None:
    assert guarded.say().status_code == guarded.say(voice="alloy").status_code == 200
    assert audited(caplog) == []
