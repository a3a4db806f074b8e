"""ElevenLabs' messages, as its SDK 2.77 and the plugins of LiveKit and Pipecat send them."""

from __future__ import annotations

import pytest
from websockets.exceptions import InvalidStatus

from cosyserve.audio import AudioFormat, decode, encode
from tests.gateway.dialects.twin import dialed
from tests.gateway.dialects.twins import ElevenLabs
from tests.gateway.serving import Running
from tests.gateway.talking import close_code

ONE = "/v1/text-to-speech/default/stream-input"


def test_one_stream_as_the_sdk_sends_it(server: Running) -> None:
    path = f"{ONE}?model_id=eleven_turbo_v2_5&output_format=mp3_44100_128"
    with dialed(server, ElevenLabs, path) as twin:
        settings = {"stability": 0.5, "similarity_boost": 0.8, "speed": 1.1}
        greeting = {"text": " ", "try_trigger_generation": True, "voice_settings": settings}
        twin.send(greeting | {"generation_config": {"chunk_length_schedule": [50]}})
        twin.send({"text": "Hello, ", "try_trigger_generation": True})
        twin.send({"text": "world. ", "try_trigger_generation": True})
        twin.send({"text": ""})
        heard = twin.hear()
        assert heard.last == {"audio": None, "isFinal": True}
        assert close_code(twin.socket) == 1000
    assert decode(heard.audio).rate == 44_100
    assert decode(heard.audio).seconds == pytest.approx(1.6, abs=0.1)
    assert server.engine.texts == ["Hello, world. "]
    assert server.engine.requests[0].speed == 1.1


def test_one_stream_goes_on_after_a_flush(server: Running) -> None:
    with dialed(server, ElevenLabs, f"{ONE}?output_format=pcm_24000") as twin:
        twin.send({"text": "One. ", "flush": True, "voice_settings": None})
        audio = b""
        whole = encode(server.engine.samples, AudioFormat.PCM)
        while len(audio) < len(whole):
            audio += twin.hear_audio()
        twin.send({"text": "Two. "})
        twin.send({"text": ""})
        assert audio + twin.hear().audio == 2 * whole
    assert server.engine.texts == ["One. ", "Two. "]


def test_one_stream_without_a_text(server: Running) -> None:
    with dialed(server, ElevenLabs, ONE) as twin:
        twin.send({"text": " "})
        twin.send({"text": ""})
        assert twin.hear().last["isFinal"]
        assert close_code(twin.socket) == 1000
    assert server.engine.requests == []


def test_contexts_speak_at_the_same_time(server: Running) -> None:
    server.behave(held=True)
    with dialed(server, ElevenLabs) as twin:
        for name in "ab":
            twin.name = name
            twin.start()
            twin.text(f"{name}. ")
            twin.end()
        twin.hear_audio()
        twin.hear_audio()
        assert server.engine.most_open == 2
        server.engine.held = False
        over = [twin.hear().last["contextId"] for _ in "ab"]
    assert sorted(over) == ["a", "b"]


def test_a_closed_context_says_what_was_flushed(server: Running) -> None:
    server.behave(held=True)
    with dialed(server, ElevenLabs) as twin:
        twin.start()
        twin.tell(text="Said. ", flush=True)
        twin.hear_audio()
        twin.text("Not said. ")
        twin.tell(close_context=True)
        twin.text("Too late. ")
        assert "is closed" in twin.error(twin.hear().last)
        server.engine.held = False
        assert twin.hear().last == {"audio": None, "isFinal": True, "contextId": "a"}
    assert server.engine.texts == ["Said. "]


def test_keeping_a_context_alive_and_closing_the_socket(server: Running) -> None:
    with dialed(server, ElevenLabs) as twin:
        twin.send({"text": ""})
        twin.tell(text="")
        twin.tell(flush=True)
        assert "no context 'a' to flush" in twin.error(twin.hear().last)
        twin.tell(close_context=True)  # of one that is not there: a late one is no mistake
        twin.start()
        twin.tell(text="Hello. ", flush=True)
        twin.tell(text="")
        twin.send({"close_socket": True})
        heard = twin.hear()
        assert heard.last["isFinal"]
        assert heard.audio == encode(server.engine.samples, AudioFormat.PCM)
        assert close_code(twin.socket) == 1000


def test_a_context_without_a_name(server: Running) -> None:
    with dialed(server, ElevenLabs) as twin:
        twin.send({"text": "Hello. ", "flush": True})
        twin.send({"close_context": True})
        assert twin.hear().last == {"audio": None, "isFinal": True}


def test_too_many_contexts(server: Running) -> None:
    with dialed(server, ElevenLabs) as twin:
        for number in range(65):
            twin.name = str(number)
            twin.start()
        assert "64 contexts are open" in twin.error(twin.hear().last)
        twin.name = "0"
        twin.cancel()
        assert twin.hear().last["contextId"] == "0"
        twin.name = "64"
        assert not twin.error(twin.say().last)


@pytest.mark.parametrize(
    ("output_format", "told"),
    [("pcm_x", "sample rate"), ("vorbis_8000", "no audio format"), ("pcm_1", "sample_rate")],
)
def test_formats_that_are_not_there(server: Running, output_format: str, told: str) -> None:
    path = f"{ONE}?output_format={output_format}"
    with pytest.raises(InvalidStatus) as refused, dialed(server, ElevenLabs, path):
        pass
    assert refused.value.response.status_code == 400
    assert told in refused.value.response.body.decode()


@pytest.mark.parametrize(
    ("name", "ours", "rate"),
    [
        ("ulaw_8000", AudioFormat.MULAW, 8000),
        ("alaw_8000", AudioFormat.ALAW, 8000),
        ("pcm_16000", AudioFormat.PCM, 16_000),
    ],
)
def test_formats(server: Running, name: str, ours: AudioFormat, rate: int) -> None:
    with dialed(server, ElevenLabs, f"{ONE}?output_format={name}") as twin:
        twin.send({"text": "Hello. "})
        twin.send({"text": ""})
        assert twin.hear().audio == encode(server.engine.samples, ours, out_rate=rate)
