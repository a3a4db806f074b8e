"""The Realtime API: OpenAI's own client, twins of the clients that speak through it, strangers."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from cosyserve.audio import AudioFormat, encode
from cosyserve.contracts import Mode
from cosyserve.errors import CosyError, OverloadError
from cosyserve.settings import Settings
from tests.gateway.serving import Running, serving
from tests.gateway.sine_engine import SineEngine, voice_of
from tests.gateway.talking import close_code
from tests.waiting import wait_until

Event = dict[str, Any]
FORM: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)


def message(text: str, role: str = "user", kind: str = "input_text") -> Event:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


class Talk:
    def __init__(self, connection: ClientConnection) -> None:
        self.socket = connection

    def send(self, kind: str, **fields: Any) -> None:
        self.socket.send(json.dumps({"type": kind, **fields}))

    def next(self) -> Event:
        text = self.socket.recv(timeout=20)
        assert FORM.validate_json(text).type  # as OpenAI's package describes it
        event: Event = json.loads(text)
        return event

    def hear(self, kind: str) -> list[Event]:
        """All events up to the first of this kind."""
        events = [self.next()]
        while events[-1]["type"] != kind:
            assert events[-1]["type"] != "error", events[-1]
            events.append(self.next())
        return events

    def say(self, text: str, **fields: Any) -> list[Event]:
        self.send("response.create", response={"input": [message(text)], **fields})
        return self.hear("response.done")

    def error(self) -> Event:
        event = self.next()
        assert event["type"] == "error", event
        error: Event = event["error"]
        return error


@contextmanager
def talking(server: Running, query: str = "?model=gpt-realtime", **options: Any) -> Iterator[Talk]:
    address = server.url.replace("http", "ws", 1) + "/v1/realtime" + query
    with connect(address, compression=None, close_timeout=2, **options) as connection:
        talk = Talk(connection)
        assert talk.next()["type"] == "session.created"
        yield talk


def audio(events: list[Event]) -> bytes:
    deltas = (e["delta"] for e in events if e["type"] == "response.output_audio.delta")
    return b"".join(base64.b64decode(delta) for delta in deltas)


def wait_until_gone(server: Running) -> None:
    server.wait_until_idle()
    wait_until(lambda: not server.app.state.connections.count)


def test_the_openai_client(server: Running) -> None:
    heard, kinds, client = b"", [], openai.OpenAI(api_key="none", base_url=f"{server.url}/v1")
    with client, client.realtime.connect(model="gpt-realtime-2.1-mini") as connection:
        created = connection.recv()
        assert created.type == "session.created"
        assert created.session.model == "sine"
        connection.session.update(session={"type": "realtime", "audio": {"output": {"speed": 1.5}}})
        updated = connection.recv()
        assert updated.type == "session.updated"
        assert updated.session.audio.output.speed == 1.5
        connection.conversation.item.create(item=message("Twenty 20."))
        connection.conversation.item.create(item=message("Be kind.", role="system"))
        connection.response.create()
        for event in connection:
            kinds.append(event.type)
            if event.type == "response.output_audio.delta":
                heard += base64.b64decode(event.delta)
            if event.type == "response.done":
                break
    assert heard == encode(server.engine.samples, AudioFormat.PCM)
    response = event.response
    assert (response.status, response.usage.total_tokens) == ("completed", 47)
    assert response.output[0].content[0].transcript == "Twenty 20."
    audio_events = kinds.count("response.output_audio.delta")
    assert audio_events == server.engine.chunks
    once = [kind for kind in kinds if kind != "response.output_audio.delta"]
    assert once == [
        *("conversation.item.added", "conversation.item.done") * 2,
        "response.created",
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
        "response.output_audio_transcript.delta",
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
        "response.output_item.done",
        "conversation.item.done",
        "response.done",
    ]
    (request,) = server.engine.requests
    assert (request.text, request.speed, request.mode) == ("Twenty 20.", 1.5, Mode.PRESET)


def test_as_open_webui_asks(server: Running) -> None:
    prompt = "Read the text aloud, whatever it says."
    with talking(server) as talk:
        talk.send(
            "session.update",
            session={
                "type": "realtime",
                "output_modalities": ["audio"],
                "audio": {
                    "input": {"turn_detection": None, "transcription": None},
                    "output": {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "alloy"},
                },
                "tools": [],
                "tool_choice": "none",
                "instructions": prompt,
            },
        )
        assert talk.next()["session"]["audio"]["output"]["voice"] == "alloy"
        events = talk.say(
            "What time is it?",
            conversation="none",
            output_modalities=["audio"],
            tools=[],
            tool_choice="none",
            instructions=prompt,
        )
    created, done = events[0]["response"], events[-1]["response"]
    assert created["id"] == done["id"]
    assert {e["response_id"] for e in events if "response_id" in e} == {done["id"]}
    assert (done["status"], done["conversation_id"]) == ("completed", None)
    assert audio(events) == encode(server.engine.samples, AudioFormat.PCM)
    assert not any(event["type"].startswith("conversation") for event in events)
    assert server.engine.requests[0].instruction == ""  # it was for a model that converses


def test_as_wyoming_openai_asks(server: Running) -> None:
    """A connection for each sentence, and all messages at once."""
    client = openai.OpenAI(api_key="none", base_url=f"{server.url}/v1")
    with client, client.realtime.connect(model="gpt-realtime-mini") as connection:
        output = {"voice": "coral", "format": {"type": "audio/pcm", "rate": 24000}, "speed": 1.25}
        connection.session.update(
            session={
                "type": "realtime",
                "output_modalities": ["audio"],
                "tool_choice": "none",
                "instructions": "Say it word for word.\n\nDelivery style: Whisper.",
                "audio": {"output": output},
            }
        )
        asked = {"conversation": "none", "output_modalities": ["audio"], "input": [message("Hi.")]}
        connection.response.create(response=asked)
        said = ""
        for event in connection:
            if event.type == "response.output_audio_transcript.done":
                said += event.transcript
            if event.type == "response.done":
                break
    assert (said, event.response.status) == ("Hi.", "completed")
    (request,) = server.engine.requests
    assert (request.mode, request.instruction) == (Mode.INSTRUCT, "Whisper.")
    assert request.speed == 1.25


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
    ("[" * 100_000, "invalid_json", None),
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


KEY = "a-key"
HEADERS = {"additional_headers": {"Authorization": f"Bearer {KEY}"}}


@pytest.fixture(scope="module")
def narrow() -> Iterator[Running]:
    settings = Settings(max_requests=1, max_connections=2, max_idle_seconds=4)
    with serving(SineEngine(), settings, keys=[KEY]) as running:
        yield running


@pytest.mark.parametrize(
    ("query", "options", "status"),
    [
        ("", {}, 401),
        ("", {"additional_headers": {"Authorization": "Bearer wrong"}}, 401),
        ("", {"subprotocols": ["realtime", "openai-insecure-api-key.wrong"]}, 401),
        ("?model=whisper-1", HEADERS, 404),
    ],
)
def test_who_is_not_let_in(
    narrow: Running, query: str, options: dict[str, Any], status: int
) -> None:
    with pytest.raises(InvalidStatus) as refused, talking(narrow, query, **options):
        pass
    assert refused.value.response.status_code == status


def test_a_page_sends_its_key_as_openais_pages_do(narrow: Running) -> None:
    offered = ["realtime", f"openai-insecure-api-key.{KEY}"]
    with talking(narrow, subprotocols=offered, origin="https://elsewhere.example") as talk:
        assert talk.socket.subprotocol == "realtime"
        assert talk.say("Hello.")[-1]["response"]["status"] == "completed"


def test_limits_are_those_of_all_requests(narrow: Running) -> None:
    narrow.behave(held=True)
    with talking(narrow, **HEADERS) as first, talking(narrow, **HEADERS) as second:
        with pytest.raises(InvalidStatus) as refused, talking(narrow, **HEADERS):
            pass
        assert refused.value.response.status_code == 429
        first.send("response.create", response={"input": [message("Hello.")]})
        first.hear("response.output_audio.delta")
        second.send("response.create", response={"input": [message("Hello.")]})
        assert second.error()["code"] == "too_many_requests"
        first.send("response.cancel")
        first.hear("response.done")
    wait_until_gone(narrow)


def test_who_never_asks_is_sent_away(narrow: Running) -> None:
    narrow.behave()
    with talking(narrow, **HEADERS) as silent, talking(narrow, **HEADERS) as talk:
        talk.send("session.update", session={})
        talk.next()
        assert silent.error()["code"] == "timeout"
        assert close_code(silent.socket) == 1008
        assert talk.say("Hello.")[-1]["response"]["status"] == "completed"


def test_without_an_upgrade(server: Running) -> None:
    assert server.http.get("/v1/realtime").status_code == 426
