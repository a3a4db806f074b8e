"""DashScope's voice enrolment, as its SDK asks and reads."""

from __future__ import annotations

import base64
import re
from typing import Any

import httpx
import pytest

from tests.gateway.serving import Running
from tests.gateway.voices.test_routes import RECORDING

PATH = "/api/v1/services/audio/tts/customization"
URL = "data:audio/wav;base64," + base64.b64encode(RECORDING).decode()
CREATE = {"action": "create_voice", "target_model": "cosyvoice-v3-flash", "prefix": "ada"}
CREATE |= {"url": URL, "consent": "Ada agreed.", "language_hints": ["en"]}


def ask(server: Running, **fields: Any) -> httpx.Response:
    return server.http.post(PATH, json={"model": "voice-enrollment", "input": fields})


def output(server: Running, **fields: Any) -> dict[str, Any]:
    answer = ask(server, **fields)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    assert told["request_id"] == answer.headers["x-request-id"]
    found: dict[str, Any] = told["output"]
    return found


def test_a_voice_from_birth_to_end(server: Running) -> None:
    made = [output(server, **CREATE)["voice_id"] for _ in range(2)]
    assert all(re.fullmatch(r"ada-[0-9a-f]{12}", id) for id in made)
    assert server.say(voice=made[0]).status_code == 200
    shown = server.http.get(f"/v1/audio/voices/{made[0]}").json()
    assert (shown["consent"], shown["language"]) == ("Ada agreed.", "en")

    listed = output(server, action="list_voice", prefix="ada", page_index=0, page_size=10)
    assert sorted(voice["voice_id"] for voice in listed["voice_list"]) == sorted(made)
    assert listed["voice_list"][0]["gmt_create"] == "2026-05-01 12:00:00"
    second = output(server, action="list_voice", prefix="ada", page_index=1, page_size=1)
    assert [voice["voice_id"] for voice in second["voice_list"]] == [sorted(made)[1]]
    assert output(server, action="list_voice", prefix="bob")["voice_list"] == []

    assert output(server, action="query_voice", voice_id=made[0])["status"] == "OK"
    for id in made:
        assert output(server, action="delete_voice", voice_id=id) == {}
    gone = ask(server, action="query_voice", voice_id=made[0])
    assert gone.status_code == 404
    assert gone.json()["code"] == "InvalidParameter"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"consent": None}, "consent"),
        ({"url": "https://example.org/a.wav"}, "fetches no URL"),
        ({"url": "data:audio/wav;base64,AAAA"}, ""),
        ({"prefix": "no/prefix"}, "prefix"),
        ({"action": "sing"}, "action"),
        ({"action": "update_voice", "voice_id": "ada"}, "action"),
    ],
)
def test_what_can_not_be(server: Running, fields: dict[str, Any], told: str) -> None:
    answer = ask(server, **(CREATE | fields))
    assert answer.status_code == 400
    error = answer.json()
    assert (error["code"], error["request_id"]) == (
        "InvalidParameter",
        answer.headers["x-request-id"],
    )
    assert told in error["message"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"input": 5}'])
def test_what_is_no_request(server: Running, body: bytes) -> None:
    answer = server.http.post(PATH, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["message"]
