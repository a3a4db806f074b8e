"""The WebSocket: text in, audio out, cancelling, what is counted of it."""

from __future__ import annotations

import base64
import json
import logging
import time

import pytest

from cosyserve.audio import MEDIA_TYPES, AudioFormat, encode
from cosyserve.audio.formats import output_rate
from cosyserve.contracts import Sampling
from tests.gateway.serving import Running
from tests.gateway.sine_engine import sine
from tests.gateway.speech.test_routes import check_audio
from tests.gateway.talking import STREAM, talking
from tests.gateway.test_status import samples
from tests.waiting import wait_until

TEXT = "Every letter comes alone."


@pytest.mark.parametrize("audio_format", AudioFormat)
def test_pieces_are_spoken_as_the_whole_is_over_http(
    server: Running, audio_format: AudioFormat
) -> None:
    with talking(server.url) as talk:
        reply = talk.say(*TEXT, response_format=audio_format, seed=3, speed=1.5)
    started, done = reply.events
    whole = server.say(input=TEXT, response_format=audio_format, seed=3, speed=1.5)
    if audio_format is not AudioFormat.OPUS:  # an Ogg stream has a serial number of its own
        assert reply.audio == whole.content
    check_audio(reply.audio, audio_format, server.engine)
    assert server.engine.texts[0] == TEXT
    streamed, posted = server.engine.requests
    assert (streamed.seed, streamed.speed, streamed.mode) == (
        posted.seed,
        posted.speed,
        posted.mode,
    )
    assert started == {
        "type": "started",
        "request_id": done["request_id"],
        "content_type": MEDIA_TYPES[audio_format],
        "sample_rate": output_rate(audio_format),
    }
    assert done == {
        "type": "done",
        "request_id": started["request_id"],
        "finish_reason": "stop",
        "usage": {"input_tokens": 7, "output_tokens": 40, "total_tokens": 47},
    }


def test_audio_comes_while_the_text_does(server: Running) -> None:
    with talking(server.url) as talk:
        talk.start()
        assert talk.hear("started")
        assert server.engine.open_sessions == 0  # nothing is held before there is text
        talk.text("One ")
        assert talk.socket.recv(timeout=5)
        talk.text("two.")
        talk.send("end")
        assert talk.hear().last["finish_reason"] == "stop"
    assert server.engine.texts == ["One two."]


def test_utterances_follow_each_other(server: Running) -> None:
    with talking(server.url, additional_headers={"x-request-id": "call-7"}) as talk:
        for number, audio_format in enumerate(("pcm", "wav", "pcm", "flac"), start=1):
            reply = talk.say(f"Number {number}.", response_format=audio_format)
            check_audio(reply.audio, AudioFormat(audio_format), server.engine)
            assert reply.last["request_id"] == f"call-7.{number}"
    assert server.engine.texts == [f"Number {number}." for number in range(1, 5)]


def test_fields_of_our_own(server: Running) -> None:
    with talking(server.url) as talk:
        reference = base64.b64encode(encode(sine(48_000), AudioFormat.WAV)).decode()
        fields = {"reference_audio": reference, "reference_text": "Hum.", "sample_rate": 16_000}
        reply = talk.say(language="en", temperature=0.7, **fields)
    assert reply.events[0]["sample_rate"] == 16_000
    assert len(reply.audio) == len(server.engine.samples) * 2 // 3 * 2
    (request,) = server.engine.requests
    assert (request.voice.prompt_text, request.language) == ("Hum.", "en")
    assert request.sampling == Sampling(temperature=0.7)


def test_large_chunks_come_in_small_frames(server: Running) -> None:
    server.behave(chunks=2, chunk_tokens=1000)  # two megabytes each; clients take one
    with talking(server.url) as talk:
        reply = talk.say()
    assert reply.audio == encode(server.engine.samples, AudioFormat.PCM)
    assert max(reply.frames) <= 1 << 16


def test_cancelling_at_every_stage(server: Running) -> None:
    server.behave(delay=30.0)
    with talking(server.url) as talk:
        for stage in range(4):
            talk.start()
            if stage > 0:
                talk.hear("started")
            if stage > 1:
                talk.text("Hello.")
            if stage > 2:
                assert talk.socket.recv(timeout=5)
            talk.send("cancel")
            done = talk.hear().last
            assert (done["type"], done["finish_reason"]) == ("done", "cancelled")
            assert done["usage"]["output_tokens"] in ((0,), (0,), (0, 10), (10,))[stage]
            assert server.engine.open_sessions == 0
            talk.text("What", "is", "left.")  # was on its way: no mistake
            talk.send("end")
        server.behave()
        assert talk.say().last["finish_reason"] == "stop"
    assert server.engine.sessions == 1


def test_cancelling_too_late(server: Running) -> None:
    with talking(server.url) as talk:
        for _ in range(3):
            talk.start()
            talk.text("Hello.")
            talk.send("end")
            talk.send("cancel")
            talk.send("cancel")
            assert talk.hear().last["finish_reason"] in ("stop", "cancelled")
            talk.send("cancel")
        assert talk.say().last["finish_reason"] == "stop"


def test_cancelling_against_the_end(server: Running) -> None:
    """However close they come, there is one end, and nothing behind it."""
    server.behave(chunks=2, chunk_tokens=1, delay=0.01)
    ends = set()
    with talking(server.url) as talk:
        for turn in range(60):
            talk.start()
            talk.text("Hello.")
            talk.send("end")
            talk.hear("started")
            time.sleep(turn * 0.0004)
            talk.send("cancel")
            ends.add(talk.hear().last["finish_reason"])
        with pytest.raises(TimeoutError):
            talk.socket.recv(timeout=0.1)
    assert ends == {"stop", "cancelled"}


START = {"type": "start", "model": "tts-1", "response_format": "pcm"}


def test_a_speech_that_ends_before_its_text(server: Running) -> None:
    server.behave(finish="length")
    with talking(server.url) as talk:
        talk.start()
        talk.text("Hello.")
        assert talk.hear().last["finish_reason"] == "length"
        talk.text("More of it.")
        talk.send("end")
        server.behave()
        assert talk.say().last["finish_reason"] == "stop"


def test_metrics_and_the_log(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cosyserve.gateway")
    before = samples(server.http.get("/metrics").text)
    with talking(server.url) as talk:
        talk.start()
        talk.hear("started")
        time.sleep(0.5)
        talk.text("My secret.")
        talk.send("end")
        talk.hear()
        talk.text("out of order")
        talk.error()
        after = samples(server.http.get("/metrics").text)
        talk.start(voice="nobody")
        talk.error()
        talk.socket.close()

    def grown(*key: str) -> float:
        return after.get(key, 0.0) - before.get(key, 0.0)

    assert after["cosyserve_connections",] == 1
    assert grown("cosyserve_first_audio_seconds_count") == 1
    assert grown("cosyserve_first_audio_seconds_sum") < 0.4  # since there was text
    assert grown("cosyserve_audio_seconds_total") == pytest.approx(1.6)
    assert grown("cosyserve_request_seconds_count", STREAM, "200") == 1
    assert grown("cosyserve_refusals_total", "out_of_order") == 1
    assert grown("cosyserve_real_time_factor_count") == 0  # text sets the pace, not the engine
    wait_until(lambda: not server.app.state.connections.count)
    records = [record for record in caplog.records if record.name == "cosyserve.gateway"]
    lines = [json.loads(record.getMessage()) for record in records]
    streamed, refused, connection = (line for line in lines if line["path"] == STREAM)
    assert connection["status"] == 101
    assert streamed["request_id"] == connection["request_id"] + ".1"
    assert refused["request_id"] == connection["request_id"] + ".2"
    assert (streamed["characters"], streamed["finish"], streamed["status"]) == (10, "stop", 200)
    assert (refused["error"], refused["status"]) == ("voice_not_found", 404)
    assert "secret" not in caplog.text
    assert samples(server.http.get("/metrics").text)["cosyserve_connections",] == 0
