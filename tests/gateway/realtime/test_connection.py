"""The Realtime API: sessions and responses, those that are cancelled and those that fail."""

from __future__ import annotations

import json
import socket

import pytest

from cosyserve.audio import AudioFormat, encode
from cosyserve.errors import CosyError, OverloadError
from tests.gateway.realtime.talking import audio, message, talking, wait_until_gone
from tests.gateway.serving import Running
from tests.gateway.sine_engine import voice_of


def test_voices_and_formats_of_a_session_and_of_a_response(server: Running) -> None:
    server.engine.voices = {"default": voice_of(0), "ada": voice_of(3, "Hum."), "bob": voice_of(4)}
    with talking(server, "") as talk:
        for voice in ("ada", {"id": "bob"}):
            talk.send("session.update", session={"audio": {"output": {"voice": voice}}})
            assert talk.hear("session.updated")
            talk.say("One.")
        form = {"format": {"type": "audio/pcmu"}, "voice": "ada"}
        telephone = talk.say("Two.", audio={"output": form})
        talk.say("Three.")
    voices = [len(request.voice.speech_tokens) for request in server.engine.requests]
    assert voices == [3, 4, 3, 4]
    assert audio(telephone) == encode(server.engine.samples, AudioFormat.MULAW)


def test_a_response_speaks_what_was_written_since_the_last(server: Running) -> None:
    with talking(server) as talk:
        for text in ("One.", "Two."):
            talk.send("conversation.item.create", item=message(text))
        talk.send("conversation.item.create", item=message("Hm.", "assistant", "output_text"))
        talk.send("response.create")
        talk.hear("response.done")
        talk.send("response.create", event_id="again")
        error = talk.error()
        assert (error["code"], error["event_id"]) == ("invalid_value", "again")
        talk.send("conversation.item.create", item=message("Three."))
        talk.send("response.create")
        talk.hear("response.done")
    assert [request.text for request in server.engine.requests] == ["One. Two.", "Three."]


def test_cancel(server: Running) -> None:
    server.behave(held=True)
    with talking(server) as talk:
        talk.send("response.create", response={"input": [message("Hello.")]})
        response = talk.hear("response.output_audio.delta")[0]["response"]
        talk.send("response.create", response={"input": [message("Hello.")]})
        assert talk.error()["code"] == "conversation_already_has_active_response"
        talk.send("response.cancel", response_id="resp_another")
        assert talk.error()["code"] == "response_cancel_not_active"
        talk.send("response.cancel", response_id=response["id"])
        done = talk.hear("response.done")[-1]["response"]
        assert (done["id"], done["status"]) == (response["id"], "cancelled")
        assert done["status_details"] == {"type": "cancelled", "reason": "client_cancelled"}
        assert done["output"][0]["status"] == "incomplete"
        server.wait_until_idle()
        talk.send("response.cancel")
        assert talk.error()["code"] == "response_cancel_not_active"
        server.behave()
        assert talk.say("Hello.")[-1]["response"]["status"] == "completed"


REFUSED: list[tuple[str | bytes, str, str | None]] = [
    (b"audio", "invalid_json", None),
    ("[]", "invalid_json", None),
    ("[" * 100_000, "too_many_values", None),
    ('{"type": "session.dance"}', "invalid_value", "type"),
    ('{"type": "input_audio_buffer.append", "audio": ""}', "invalid_value", "type"),
    ('{"type": "session.update", "session": {"type": "transcription"}}', *("", "session.type")),
    (
        '{"type": "session.update", "session": {"output_modalities": ["text"]}}',
        *("", "session.output_modalities"),
    ),
    (
        '{"type": "session.update", "session": {"audio": {"output": {"speed": 9}}}}',
        *("", "session.audio.output.speed"),
    ),
    (
        '{"type": "session.update", "session": {"instructions": "Delivery style: '
        + "x" * 5000
        + '"}}',
        *("", "instructions"),
    ),
    (
        '{"type": "session.update", "session": {"audio": {"output": {"format": '
        '{"type": "audio/pcma"}}}}}',
        *("", "session.audio.output.format"),
    ),
    (
        '{"type": "response.create", "response": {"input": [{"type": "item_reference"}]}}',
        *("", "response.input.0.type"),
    ),
    ('{"type": "response.create"}', "invalid_value", "conversation"),
    ('{"type": "response.create", "response": {"input": []}}', *("", "response.input")),
    (
        json.dumps({"type": "conversation.item.create", "item": message("x" * 4097)}),
        *("input_too_long", "item.content"),
    ),
]


def test_refused_events_change_nothing(server: Running) -> None:
    with talking(server) as talk:
        for sent, code, param in REFUSED:
            talk.socket.send(sent)
            error = talk.error()
            assert (error["code"], error["param"]) == (code or "invalid_value", param), sent[:90]
            assert len(error["message"]) < 500
        assert talk.say("Hello.")[-1]["response"]["status"] == "completed"


def test_a_response_that_can_not_begin_is_an_error(server: Running) -> None:
    with talking(server) as talk:
        other = {"audio": {"output": {"voice": "nobody"}}, "input": [message("Hello.")]}
        talk.send("response.create", event_id="mine", response=other)
        error = talk.error()
        assert (error["code"], error["event_id"]) == ("voice_not_found", "mine")
        assert talk.say("Hello.")[-1]["response"]["status"] == "completed"


@pytest.mark.parametrize("error", [CosyError("worn out"), OverloadError("full", 1)])
def test_a_response_that_fails_says_so(server: Running, error: Exception) -> None:
    server.behave(error=error, error_at=2)
    with talking(server) as talk:
        done = talk.say("Hello.")[-1]["response"]
        assert done["status"] == "failed"
        assert done["status_details"]["error"]["message"] == str(error)
        server.behave(finish="length")
        done = talk.say("Hello.")[-1]["response"]
        assert (done["status"], done["status_details"]["reason"]) == (
            "incomplete",
            "max_output_tokens",
        )
        server.behave(finish="early")  # a reason that OpenAI has no word for
        done = talk.say("Hello.")[-1]["response"]
        assert (done["status"], done["status_details"]["reason"]) == ("incomplete", None)


@pytest.mark.parametrize("stage", ["open", "waiting", "speaking"])
@pytest.mark.parametrize("politely", [True, False])
def test_who_leaves_frees_the_session(server: Running, stage: str, politely: bool) -> None:
    server.behave(first_delay=30.0 if stage == "waiting" else 0.0, held=True)
    with talking(server) as talk:
        if stage != "open":
            talk.send("response.create", response={"input": [message("Hello.")]})
            talk.hear("response.created" if stage == "waiting" else "response.output_audio.delta")
        if politely:
            talk.socket.close()
        else:
            talk.socket.socket.shutdown(socket.SHUT_RDWR)
        wait_until_gone(server)
