"""The WebSocket when something is wrong: messages, starts, engines, ourselves."""

from __future__ import annotations

import json

import httpx
import pytest

from cosyserve.audio import AudioFormat, encode
from cosyserve.errors import CosyError, InputError, OverloadError, WorkerError
from tests.gateway.serving import Running
from tests.gateway.talking import STREAM, close_code, talking
from tests.gateway.websocket.test_connection import START, TEXT


@pytest.mark.parametrize(
    ("message", "code", "param"),
    [
        ({"type": "text", "text": "a"}, "out_of_order", "type"),
        ({"type": "end"}, "out_of_order", "type"),
        ({"type": "flush"}, "out_of_order", "type"),
        ({"type": "pause"}, "invalid_value", "type"),
        ({"type": "x" * 100_000}, "invalid_value", "type"),
        ({"type": None}, "invalid_value", "type"),
        ({}, "invalid_value", "type"),
        ({"type": "text"}, "invalid_value", "text"),
        ({"type": "text", "text": 5}, "invalid_value", "text"),
        ({"type": "text", "text": "a", "more": 1}, "invalid_value", "more"),
        ({"type": "end", "more": 1}, "invalid_value", "more"),
        ({"type": "keep_alive", "context": "a"}, "invalid_value", "context"),
        ({"type": "start", "model": 5}, "invalid_value", "model"),
        (START | {"context": ""}, "invalid_value", "context"),
        (START | {"context": "a b"}, "invalid_value", "context"),
        (START | {"context": "x" * 65}, "invalid_value", "context"),
        (START | {"context": "ä"}, "invalid_value", "context"),
        (START | {"audio": "hex"}, "invalid_value", "audio"),
        (START | {"split": "word"}, "invalid_value", "split"),
        (START | {"input": "a"}, "invalid_value", "input"),
        (START | {"stream_format": "sse"}, "invalid_value", "stream_format"),
        (START | {"speed": 9}, "invalid_value", "speed"),
        (START | {"voice": {}}, "invalid_value", "voice"),
        (START | {"reference_audio": "???"}, "invalid_value", "reference_audio"),
        ({"type": []}, "invalid_value", "type"),
        ({"type": {}}, "invalid_value", "type"),
        ({"type": "text", "text": [0] * 60_000}, "too_many_values", None),
        ([], "invalid_json", None),
        (None, "invalid_json", None),
        (b"\0" * 100, "invalid_json", None),
        ("", "invalid_json", None),
        ("{", "invalid_json", None),
        ("[" * 40_000, "invalid_json", None),
        ({"type": "text", "text": "\ud800"}, "out_of_order", "type"),
        ({"type": "text", "text": "a", "more": "\ud800"}, "invalid_json", None),
        ({"type": "text", "text": "\ud800", "context": "\ud800"}, "invalid_json", None),
        ({"type": "text", "text": "\ud800", "\ud800": 1}, "invalid_json", None),
        ({"type": "\ud800"}, "invalid_json", None),
        (START | {"voice": "\ud800"}, "invalid_json", None),
        ('{"type": "text", "text": "\\ud800", "more": ' + "[" * 40_000, "invalid_json", None),
    ],
    ids=lambda value: str(value)[:40],
)
def test_messages_that_are_refused(
    server: Running, message: object, code: str, param: str | None
) -> None:
    sent = message if isinstance(message, str | bytes) else json.dumps(message)
    with talking(server.url) as talk:
        talk.socket.send(sent)
        refused = talk.hear().last
        assert refused["request_id"] is None
        assert (refused["error"]["code"], refused["error"]["param"]) == (code, param)
        assert 0 < len(refused["error"]["message"]) < 500
        assert talk.say().last["finish_reason"] == "stop"


def test_refused_messages_do_not_disturb_who_speaks(server: Running) -> None:
    with talking(server.url) as talk:
        talk.start()
        talk.text("One ")
        talk.start(response_format="wav")
        talk.socket.send(b"\0")
        talk.text("two.")
        talk.send("end")
        talk.text("three")
        talk.send("end")
        reply = talk.hear("done")
        messages = [e["error"]["message"] for e in reply.events if e["type"] == "error"]
        assert [message[:10] for message in messages[:2]] == ["one uttera", "send a JSO"]
        assert reply.audio == encode(server.engine.samples, AudioFormat.PCM)
        assert server.engine.texts == ["One two."]


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"model": "gpt-5"}, "model_not_found", "model"),
        ({"voice": "nobody"}, "voice_not_found", "voice"),
        ({"mode": "instruct"}, "invalid_input", None),
        ({"sample_rate": 44_100, "response_format": "opus"}, "invalid_audio", None),
        ({"reference_audio": "AAAA"}, "invalid_audio", None),
    ],
)
def test_a_start_that_cannot_be(
    server: Running, fields: dict[str, object], code: str, param: str | None
) -> None:
    with talking(server.url) as talk:
        talk.start(**fields)
        talk.text(*TEXT)
        talk.send("end")
        refused = talk.hear().last
        assert (refused["error"]["code"], refused["error"]["param"]) == (code, param)
        assert refused["request_id"].endswith(".1")
        assert talk.say().last["finish_reason"] == "stop"  # no complaint about the letters
    assert server.engine.sessions == 1


@pytest.mark.parametrize("pieces", [(), ("",), (" ", "\n"), ("!", " ...")])
def test_nothing_to_say(server: Running, pieces: tuple[str, ...]) -> None:
    with talking(server.url) as talk:
        talk.start()
        talk.text(*pieces)
        talk.send("end")
        assert talk.error()["message"] == "the text holds nothing to say"
        assert talk.say(*pieces, "Now.").last["type"] == "done"
    assert server.engine.texts == ["".join(pieces) + "Now."]


@pytest.mark.parametrize("error_at", [0, 2])
@pytest.mark.parametrize(
    ("error", "code", "retry_after"),
    [
        (WorkerError("died"), "engine_unavailable", 1),
        (OverloadError("full", 2.5), "overloaded", 3),
        (InputError("can't"), "invalid_input", None),
        (CosyError("failed"), "engine_failed", None),
        (RuntimeError("secret"), "internal", None),
    ],
)
def test_an_engine_that_fails(
    server: Running, error: Exception, code: str, retry_after: int | None, error_at: int
) -> None:
    server.behave(error=error, error_at=error_at)
    with talking(server.url) as talk:
        talk.start()
        talk.text("Hello.")
        event = talk.hear().last
        assert (event["error"]["code"], event["retry_after"]) == (code, retry_after)
        assert event["request_id"].endswith(".1")
        assert "secret" not in str(event)
        assert server.engine.open_sessions == 0
        talk.text("more")
        server.behave()
        assert talk.say().last["finish_reason"] == "stop"


def test_the_engines_nan_is_not_the_clients_fault(server: Running) -> None:
    server.behave(poison=True)
    with talking(server.url) as talk:
        assert talk.say().last["error"]["code"] == "engine_failed"


def test_a_fault_of_ours_ends_the_connection_and_is_logged(
    server: Running, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("cosyserve.gateway.connection.text.TextBuffer.push", broken)
    with talking(server.url) as talk:
        talk.start()
        talk.hear("started")
        talk.text("Hello.")
        assert close_code(talk.socket) == 1011
    server.wait_until_idle()
    assert "ZeroDivisionError" in caplog.text


def test_without_an_upgrade(server: Running) -> None:
    answer = httpx.get(server.url + STREAM)
    assert (answer.status_code, answer.headers["upgrade"]) == (426, "websocket")
    assert answer.json()["error"]["code"] == "upgrade_required"
