"""Errors of every kind: the envelope before any audio, an unmistakable end after it."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

import httpx
import pytest

from cosyserve import errors
from cosyserve.errors import (
    AudioError,
    CheckpointError,
    ConsentError,
    CosyError,
    InputError,
    LLMServerError,
    MissingVoiceError,
    OverloadError,
    SlowReaderError,
    StoreError,
    VoiceError,
    WorkerError,
)
from cosyserve.gateway.errors import as_refusal
from tests.gateway.serving import SPEECH, Running


def check_envelope(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["x-request-id"]
    body = response.json()
    assert set(body) == {"error"}
    error: dict[str, Any] = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == code
    assert error["message"]
    return error


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (OverloadError("full", 0.2), 429, "overloaded"),
        (SlowReaderError("too slow"), 408, "slow_reader"),
        (InputError("can't"), 400, "invalid_input"),
        (AudioError("can't"), 400, "invalid_audio"),
        (VoiceError("can't"), 400, "invalid_voice"),
        (MissingVoiceError("can't"), 404, "voice_not_found"),
        (ConsentError("who agreed?"), 400, "consent_required"),
        (WorkerError("died"), 503, "engine_unavailable"),
        (StoreError("gone"), 503, "voice_store_unavailable"),
        (LLMServerError("no speech"), 502, "llm_server_failed"),
        (CheckpointError("broken"), 500, "engine_failed"),
        (CosyError("failed"), 500, "engine_failed"),
    ],
)
@pytest.mark.parametrize("stream_format", ["audio", "sse"])
def test_before_any_audio(
    server: Running, error: Exception, status: int, code: str, stream_format: str
) -> None:
    server.behave(error=error)
    body = check_envelope(server.say(stream_format=stream_format), status, code)
    assert body["message"] == str(error)
    server.wait_until_idle()


KINDS = {name: kind for name, kind in CosyError.kinds.items() if kind.__module__ == errors.__name__}
# A model folder that is broken or lacks a part is nothing that a client could change.
FAULTS_OF_THE_SERVER = {"CheckpointError"}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_error_has_a_status(kind: str) -> None:
    error = CosyError.of_kind(kind, "the reason", retry_after=1.0)
    assert type(error) is KINDS[kind]
    answer = as_refusal(error)
    assert answer.detail == "the reason"
    assert (answer.status_code == 500) is (kind in FAULTS_OF_THE_SERVER), "gateway/errors.py"


def test_the_unexpected_keeps_its_details(server: Running) -> None:
    server.behave(error=RuntimeError("secret"))
    response = server.say()
    check_envelope(response, 500, "internal")
    assert "secret" not in response.text


@pytest.mark.parametrize("error", [WorkerError("died"), InputError("late"), RuntimeError("?")])
@pytest.mark.parametrize("response_format", ["pcm", "mp3"])
def test_after_some_audio_the_connection_is_cut(
    server: Running, error: Exception, response_format: str
) -> None:
    server.behave(error=error, error_at=2)
    with pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"):
        server.say(response_format=response_format)
    server.wait_until_idle()
    assert server.http.get("/health").status_code == 200


def test_after_some_audio_an_event_tells(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cosyserve.gateway")
    server.behave(error=WorkerError("died"), error_at=2)
    server.http.get("/health")
    before = set(server.sockets)
    response = server.say(response_format="pcm", stream_format="sse")
    server.wait_until_idle()
    time.sleep(0.05)
    assert set(server.sockets) == before  # the answer is whole: the connection is kept
    *_, line = (record for record in caplog.records if record.name == "cosyserve.gateway")
    assert json.loads(line.getMessage())["error"] == "engine_unavailable"
    *_, last = (json.loads(e.removeprefix("data: ")) for e in response.text.split("\n\n") if e)
    assert last["type"] == "error"
    assert last["error"]["code"] == "engine_unavailable"
    assert "speech.audio.done" not in response.text


@pytest.mark.parametrize("finish", [None, "error", "cancelled"])
def test_a_speech_without_its_end_is_no_success(server: Running, finish: str | None) -> None:
    server.behave(finish=finish)
    with pytest.raises(httpx.RemoteProtocolError):
        server.say(response_format="pcm")


def test_the_engines_nan_is_not_the_clients_fault(server: Running) -> None:
    server.behave(poison=True)
    check_envelope(server.say(), 500, "engine_failed")


@pytest.mark.parametrize(
    ("fields", "status", "code", "param"),
    [
        ({"input": "a" * 4097}, 400, "input_too_long", "input"),
        ({"input": ""}, 400, "invalid_value", "input"),
        ({"input": " \n"}, 400, "invalid_value", "input"),
        ({"input": 5}, 400, "invalid_value", "input"),
        ({"model": "gpt-5"}, 404, "model_not_found", "model"),
        ({"voice": "nobody"}, 404, "voice_not_found", "voice"),
        ({"voice": "../../etc/passwd"}, 404, "voice_not_found", "voice"),
        ({"voice": {}}, 400, "invalid_value", "voice"),
        ({"voice": {"id": ""}}, 400, "invalid_value", "voice"),
        ({"speed": 0.2}, 400, "invalid_value", "speed"),
        ({"speed": 4.1}, 400, "invalid_value", "speed"),
        ({"response_format": "midi"}, 400, "invalid_value", "response_format"),
        ({"stream_format": "ws"}, 400, "invalid_value", "stream_format"),
        ({"mode": "convert"}, 400, "invalid_value", "mode"),
        ({"mode": "instruct"}, 400, "invalid_input", None),
        ({"mode": "preset", "instructions": "Slowly."}, 400, "invalid_input", None),
        ({"seed": -1}, 400, "invalid_value", "seed"),
        ({"sample_rate": 44_100, "response_format": "opus"}, 400, "invalid_audio", None),
        ({"reference_text": "alone"}, 400, "invalid_input", None),
        ({"reference_audio": "???"}, 400, "invalid_value", "reference_audio"),
        ({"reference_audio": "AAAA"}, 400, "invalid_audio", None),
        ({"voice": ["default"]}, 400, "invalid_value", "voice"),
        ({"temperature": -0.1}, 400, "invalid_value", "temperature"),
        ({"temperature": 2.1}, 400, "invalid_value", "temperature"),
        ({"top_k": 65}, 400, "invalid_value", "top_k"),
        ({"top_p": 0}, 400, "invalid_value", "top_p"),
        ({"max_new_tokens": 0}, 400, "invalid_value", "max_new_tokens"),
        ({"task_type": "VoiceDesign"}, 400, "invalid_value", "task_type"),
        ({"task_type": "Base"}, 400, "invalid_value", "task_type"),
        ({"speaker_embedding": [0.1]}, 400, "invalid_value", "speaker_embedding"),
        ({"word_timestamps": True}, 400, "invalid_value", "word_timestamps"),
        ({"speaker": "ada", "voice": "bob"}, 400, "invalid_value", "speaker"),
        ({"ref_audio": "file:///etc/passwd"}, 400, "invalid_value", "reference_audio"),
        ({"ref_audio": ["AAAA", "AAAA"]}, 400, "invalid_value", "reference_audio"),
        ({"ref_audio": "data:audio/wav,AAAA"}, 400, "invalid_value", "reference_audio"),
        ({"ref_audio": "https://example.org/a.wav"}, 400, "invalid_value", "reference_audio"),
        (
            {"references": [{"audio": "https://example.org/a.wav"}]},
            400,
            "invalid_value",
            "references",
        ),
        ({"references": [{"text": "Hum."}]}, 400, "invalid_value", "references"),
        ({"references": [{"data": "AAAA"}] * 2}, 400, "invalid_value", "references"),
        (
            {"x_vector_only_mode": True, "mode": "zero_shot"},
            400,
            "invalid_value",
            "x_vector_only_mode",
        ),
        ({"voice": "a(1)+"}, 400, "invalid_value", "voice"),
        ({"voice": "default(0)"}, 400, "invalid_value", "voice"),
        ({"voice": "default+nobody"}, 404, "voice_not_found", "voice"),
    ],
)
def test_a_field_that_is_wrong(
    server: Running, fields: dict[str, object], status: int, code: str, param: str | None
) -> None:
    assert check_envelope(server.say(**fields), status, code)["param"] == param
    assert server.engine.sessions == 0


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/audio/voice_consents?limit=0", None, "limit"),
        ("/v2/models/" + "a" * 201 + "/infer", {"inputs": [{}]}, "name"),
        ("/v1/audio/speech/batch", {}, "items"),
        ("/v1/audio/speech/batch", [], None),
    ],
)
def test_what_is_wrong_is_named_wherever_it_was_sent(
    server: Running, path: str, body: object, param: str | None
) -> None:
    answer = server.http.request("GET" if body is None else "POST", path, json=body)
    error = check_envelope(answer, 400, "invalid_value")
    assert error["param"] == param
    assert error["message"].startswith(f"{param}: " if param else "Input should be an object")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("null", "Input should be an object"),
        ('{"input": "a", "references": [5]}', "references: Input should be an object"),
        (
            '{"input": "a", "mode": "convert"}',
            "mode: Input should be 'zero_shot', 'cross_lingual', 'instruct' or 'preset'",
        ),
    ],
)
def test_faults_are_told_in_the_words_of_json(server: Running, body: str, told: str) -> None:
    answer = server.http.post(SPEECH, content=body, headers={"content-type": "application/json"})
    assert check_envelope(answer, 400, "invalid_value")["message"] == told


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe",
        b'{"model": "sine", "input": "\xff"}',
        b'{"model": "sine", "input": "\\ud800"}',
        b'{"model": "sine", "input": "a", "speed": NaN}',
        b'{"model": "sine", "input": "a", "speed": 1e999}',
        b'{"model": "sine", "input": "a", "seed": 1' + b"0" * 5000 + b"}",
        b"[" * 100_000,
        b'{"model": ' * 50_000,
        b'{"model": "sine", "input": "' + b"a" * 1_000_000 + b'"}',
        b'{"model": {"$ref": "#"}, "input": ["a"]}',
    ],
    ids=range(14),
)
def test_hostile_json(server: Running, body: bytes) -> None:
    response = server.http.post(SPEECH, content=body, headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert server.say().status_code == 200


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=x", b"--y\r\n"),
        ("multipart/form-data; boundary=x", b"--x\r\n\r\n\r\n--x--"),
        ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="a'),
        (
            "multipart/form-data; boundary=x; charset=nonsense",
            b'--x\r\nContent-Disposition: form-data; name="speed"\r\n\r\na\xff\r\n--x--\r\n',
        ),
        ("multipart/form-data; boundary=" + "x" * 500, b"--x"),
    ],
)
def test_hostile_forms(server: Running, kind: str, body: bytes) -> None:
    for path in (SPEECH, "/v1/audio/voices"):
        response = server.http.post(path, content=body, headers={"content-type": kind})
        assert response.status_code == 400, response.text
        assert response.json()["error"]["message"]


def test_other_media_types(server: Running) -> None:
    check_envelope(server.http.post(SPEECH, data={"input": "a"}), 415, "unsupported_media_type")


def test_unknown_paths_and_methods(server: Running) -> None:
    check_envelope(server.http.get("/v2"), 404, "not_found")
    check_envelope(server.http.get(SPEECH), 405, "method_not_allowed")
    assert server.http.get(SPEECH).headers["allow"] == "POST"
