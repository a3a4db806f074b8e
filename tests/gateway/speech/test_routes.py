"""Speaking over HTTP: every format, both framings, every field."""

from __future__ import annotations

import base64
import io
import json

import httpx
import numpy as np
import pytest
import soundfile

from cosyserve.audio import MEDIA_TYPES, AudioFormat, decode, encode
from cosyserve.contracts import Floats, Mode
from tests.gateway.serving import SPEECH, Running
from tests.gateway.sine_engine import SineEngine, sine

TELEPHONE = {AudioFormat.MULAW: "ULAW", AudioFormat.ALAW: "ALAW"}
CODEC_FRAME = {AudioFormat.MP3: 576, AudioFormat.AAC: 1024}


def decoded(data: bytes, audio_format: AudioFormat) -> Floats:
    """At the rate of 24 kHz, G.711 at 8 kHz."""
    if audio_format is AudioFormat.PCM:
        return np.frombuffer(data, "<i2").astype(np.float32) / 32768
    if audio_format is AudioFormat.F32:
        return np.frombuffer(data, "<f4")
    if subtype := TELEPHONE.get(audio_format):
        raw = {"format": "RAW", "subtype": subtype, "samplerate": 8000, "channels": 1}
        return soundfile.read(io.BytesIO(data), dtype="float32", **raw)[0]
    audio = decode(data)
    return audio.samples[:: audio.rate // 24000]


def check_audio(data: bytes, audio_format: AudioFormat, engine: SineEngine) -> None:
    whole = encode(engine.samples, audio_format)
    samples = decoded(data, audio_format)
    length = len(engine.samples) // (3 if audio_format in TELEPHONE else 1)
    assert length <= len(samples) <= length + 2 * CODEC_FRAME.get(audio_format, 0)
    assert len(samples) == len(decoded(whole, audio_format))


def events(text: str) -> list[dict[str, object]]:
    return [json.loads(line.removeprefix("data: ")) for line in text.split("\n\n") if line]


@pytest.mark.parametrize("audio_format", AudioFormat)
def test_every_format_is_streamed_and_whole(server: Running, audio_format: AudioFormat) -> None:
    server.behave(held=True, chunks=3)
    data = b""
    fields = {"model": "sine", "input": "Hello.", "response_format": audio_format}
    with server.http.stream("POST", SPEECH, json=fields) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == MEDIA_TYPES[audio_format]
        for piece in response.iter_raw():
            server.engine.held = False  # there is audio before all of it is made
            data += piece
    check_audio(data, audio_format, server.engine)


@pytest.mark.parametrize("audio_format", AudioFormat)
def test_every_format_as_events(audio_format: AudioFormat, server: Running) -> None:
    response = server.say(response_format=audio_format, stream_format="sse")
    assert response.headers["content-type"].startswith("text/event-stream")
    *deltas, done = events(response.text)
    assert {event["type"] for event in deltas} == {"speech.audio.delta"}
    data = b"".join(base64.b64decode(str(event["audio"])) for event in deltas)
    check_audio(data, audio_format, server.engine)
    usage = {"input_tokens": 7, "output_tokens": 40, "total_tokens": 47}
    assert done == {"type": "speech.audio.done", "finish_reason": "stop", "usage": usage}


def test_mp3_is_the_default(server: Running) -> None:
    response = server.say()
    assert response.headers["content-type"] == "audio/mpeg"
    check_audio(response.content, AudioFormat.MP3, server.engine)


def test_another_sample_rate(server: Running) -> None:
    response = server.say(response_format="wav", sample_rate=16_000)
    audio = decode(response.content)
    assert (audio.rate, len(audio.samples)) == (16_000, len(server.engine.samples) * 2 // 3)


def test_every_field_reaches_the_engine(server: Running) -> None:
    fields = {"voice": {"id": "default"}, "speed": 1.5, "seed": 7, "instructions": "Slowly."}
    assert server.say(**fields).status_code == 200
    (request,) = server.engine.requests
    assert (request.text, request.speed, request.seed, request.stream) == ("Hello.", 1.5, 7, True)
    assert (request.mode, request.instruction) == (Mode.INSTRUCT, "Slowly.")


def test_a_voice_without_a_prompt_is_a_preset(server: Running) -> None:
    server.say()
    server.say(mode="cross_lingual")
    assert [request.mode for request in server.engine.requests] == ["preset", "cross_lingual"]


def test_a_reference_is_learned_once_and_not_listed(server: Running) -> None:
    recording = encode(-sine(48_000), AudioFormat.WAV)  # the server remembers others
    reference = base64.b64encode(recording).decode()
    assert server.say(reference_audio=reference, reference_text="Hum.").status_code == 200
    form = {"model": "sine", "input": "Hello.", "speed": "2", "language": "en"}
    files = {"reference_audio": ("me.wav", recording)}
    assert server.http.post(SPEECH, data=form, files=files).status_code == 200
    assert server.http.post(SPEECH, data=form, files=files).status_code == 200
    by_json, by_form, again = server.engine.requests
    assert server.engine.embedded == 2
    assert again.voice is by_form.voice
    assert len(by_json.voice.speech_tokens) == len(by_form.voice.speech_tokens) == 50
    assert (by_json.voice.prompt_text, by_json.mode) == ("Hum.", Mode.ZERO_SHOT)
    assert (by_form.speed, by_form.language) == (2.0, "en")
    assert by_form.mode is Mode.CROSS_LINGUAL
    names = [voice["id"] for voice in server.http.get("/v1/audio/voices").json()["data"]]
    assert names == ["default"]


@pytest.mark.parametrize("model", ["sine", "tts-1", "tts-1-hd", "gpt-4o-mini-tts"])
@pytest.mark.parametrize("voice", ["default", "alloy", "verse"])
def test_the_names_of_openai_work(server: Running, model: str, voice: str) -> None:
    assert server.say(model=model, voice=voice, response_format="pcm").status_code == 200


@pytest.mark.parametrize("language", ["Englisch", "e", "en_US", "zh-"])
def test_a_language_is_a_code(server: Running, language: str) -> None:
    answer = server.say(language=language)
    assert answer.status_code == 400
    assert "like 'en'" in answer.json()["error"]["message"]


def test_connections_are_kept(server: Running) -> None:
    with httpx.Client(base_url=server.url, limits=httpx.Limits(max_connections=1)) as client:
        for _ in range(3):
            response = client.post(SPEECH, json={"model": "sine", "input": "Hello."})
            assert response.headers.get("connection") != "close"
