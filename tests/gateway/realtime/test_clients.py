"""The Realtime API as OpenAI's own client asks it, and twins of those that speak through it."""

from __future__ import annotations

import base64

import openai

from cosyserve.audio import AudioFormat, encode
from cosyserve.contracts import Mode
from tests.gateway.realtime.talking import audio, message, talking
from tests.gateway.serving import Running


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
