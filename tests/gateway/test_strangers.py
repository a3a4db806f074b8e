"""Whatever strangers send, in every protocol, is answered or refused in our own words.

CASES of each kind, the same at every run.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from websockets.sync.client import connect

from cosyserve.audio import Audio
from cosyserve.engine.workers.messages import LENGTH, Open, frame, to_worker
from cosyserve.errors import AudioError
from cosyserve.gateway.errors import ClientLeft, Refusal
from cosyserve.gateway.realtime.messages import ResponseCreate, SessionUpdate
from cosyserve.gateway.realtime.messages import read_event as read_realtime
from cosyserve.gateway.realtime.session import RealtimeSession
from cosyserve.gateway.speech.body import SpeechBody
from cosyserve.gateway.voices.decoding import Decoder
from cosyserve.gateway.websocket.messages import read_message
from cosyserve.gateway.wyoming.wire import read_event as read_wyoming
from cosyserve.gateway.wyoming.wire import text_of
from tests.gateway.serving import SPEECH, Running

CASES = 50
fuzzed = settings(
    max_examples=CASES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)

SURROGATE = "\ud800"
NUMBERS = [0, -1, 1.5, 1e308, float("nan"), float("inf"), 2**63, 10**400]
TEXTS = ["", " ", "Hello.", "default", "a(1)+b(2)", "wav", "data:,", "http://[", "\0", SURROGATE]
scalars = st.sampled_from([None, True, False, *NUMBERS, *TEXTS]) | st.text(max_size=8)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(scalars.map(str), inner, max_size=3)
    ),
    max_leaves=6,
)
FIELDS = sorted([*SpeechBody.model_fields, "ref_audio", "speaker", "lang_code", "word_timestamps"])


def objects(names: list[str], **sound: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with some of the fields broken, and the others sound or missing."""
    broken = st.dictionaries(st.sampled_from(names) | st.text(max_size=5), values, max_size=3)
    whole = st.sampled_from([sound, sound, sound, {}])
    return st.builds(lambda whole, broken: whole | broken, whole, broken)


def torn(data: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Bytes as they are, or with a piece of them replaced."""
    place, piece = st.integers(0, 400), st.binary(max_size=6)

    def tear(whole: bytes, begin: int, length: int, instead: bytes) -> bytes:
        return whole[:begin] + instead + whole[begin + length :]

    return data | st.builds(tear, data, place, st.integers(0, 40), piece)


def as_json(value: object) -> bytes:
    return json.dumps(value).encode()  # half a surrogate pair as an escape


speech = objects(FIELDS, model="sine", input="Hi.", response_format="pcm")
batches = objects(["items", *FIELDS], items=[{"input": "Hi.", "response_format": "pcm"}])


@pytest.fixture(scope="module")
def server(shared_server: Running) -> Iterator[Running]:
    """Its decoder finds no recording in anything: what children do with bytes is told elsewhere."""

    async def refuse(*_: object) -> Audio:
        raise AudioError("this is no recording")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Decoder, "decode", refuse)
        shared_server.behave(chunks=1)
        yield shared_server


def check(answer: httpx.Response) -> None:
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        error = answer.json()["error"]
        assert error["message"]
        assert error["type"] == "invalid_request_error"


def post(server: Running, path: str, body: bytes, kind: str = "application/json") -> httpx.Response:
    server.engine.requests.clear()
    answer = server.http.post(path, content=body, headers={"Content-Type": kind})
    check(answer)
    for request in server.engine.requests:  # a worker would understand it
        assert to_worker.decode(frame(Open.of(0, request, None))[LENGTH.size :])
    return answer


@fuzzed
@given(body=torn(speech.map(as_json)))
def test_bodies_of_speech(server: Running, body: bytes) -> None:
    post(server, SPEECH, body)


@fuzzed
@given(body=torn(batches.map(as_json)))
def test_bodies_of_batches(server: Running, body: bytes) -> None:
    answer = post(server, f"{SPEECH}/batch", body)
    for result in answer.json().get("results", ()):
        assert result["status"] == "success" or result["error"]["type"] != "server_error", result


TENSOR = ["name", "shape", "datatype", "data"]
tensors = st.tuples(
    objects(TENSOR, name="target_text", datatype="BYTES", shape=[1, 1], data=["Hi."]),
    objects(TENSOR, name="voice_id", datatype="BYTES", shape=[1, 1], data=["default"])
    | objects(TENSOR, name="reference_wav", datatype="FP32", shape=[1, 9000], data=9000 * [0.0]),
)


@fuzzed
@given(body=torn(tensors.map(lambda inputs: as_json({"inputs": inputs}))))
@example(
    as_json(
        {
            "inputs": [
                {"name": "target_text", "datatype": "BYTES", "shape": [1], "data": [SURROGATE]}
            ]
        }
    )
)
def test_bodies_of_kserve(server: Running, body: bytes) -> None:
    post(server, "/v2/models/cosyvoice2/infer", body)


parts = st.lists(
    st.tuples(
        st.sampled_from(["name", "consent", "file", "audio_sample", "text", "type", "input", "x"]),
        st.sampled_from(["", '; filename="a.wav"', "; filename*=UTF-8''%ff", '; filename="\0"']),
        st.binary(max_size=20) | st.sampled_from([b"me", b"RIFF", b"\x08" + bytes(7) + b"{}"]),
    ),
    max_size=6,
)


def as_form(fields: list[tuple[str, str, bytes]]) -> bytes:
    head = '--edge\r\nContent-Disposition: form-data; name="{}"{}\r\n\r\n'
    form = [head.format(name, file).encode() + data + b"\r\n" for name, file, data in fields]
    return b"".join(form) + b"--edge--\r\n"


@fuzzed
@given(body=torn(parts.map(as_form)), path=st.sampled_from(["/v1/audio/voices", SPEECH]))
def test_forms(server: Running, body: bytes, path: str) -> None:
    post(server, path, body, "multipart/form-data; boundary=edge")


@fuzzed
@given(message=objects(["type", "text", *FIELDS], type="start") | objects(["type"], type="text"))
def test_our_own_messages(message: dict[str, Any]) -> None:
    with suppress(Refusal):
        read_message(message)


EVENTS = ["session.update", "conversation.item.create", "response.create", "response.cancel"]
spoken = objects(["output_modalities", "audio", "instructions", "input", "metadata", "type"])
items = objects(["id", "type", "role", "content"], type="message", role="user", content=[])


@fuzzed
@given(
    event=st.builds(
        lambda kind, session, item, response: {
            "type": kind,
            "session": session,
            "item": item,
            "response": response,
        },
        st.sampled_from(EVENTS) | values,
        spoken,
        items,
        spoken,
    )
)
def test_events_of_realtime_clients(event: dict[str, Any]) -> None:
    with suppress(Refusal):
        read = read_realtime(event)
        if isinstance(read, SessionUpdate):
            assert RealtimeSession("sine").updated(read.session).fields
        if isinstance(read, ResponseCreate) and read.response:
            assert RealtimeSession("sine").updated(read.response).fields


@pytest.mark.parametrize("path", [f"{SPEECH}/stream", "/v1/realtime?model=sine"])
def test_frames_of_websockets(server: Running, path: str) -> None:
    """Frames of any content leave a connection that still answers."""
    frames = torn(objects(["type", "text", "session", *FIELDS], type="start").map(as_json))

    with connect(f"ws://127.0.0.1:{server.port}{path}") as socket:

        @fuzzed
        @given(frame=frames | st.binary(max_size=20))
        def send(frame: bytes) -> None:
            try:
                socket.send(frame.decode())
            except UnicodeDecodeError:
                socket.send(frame)

        send()
        socket.send('{"type": "that is all"}')
        while b"that is all" not in _bytes(heard := socket.recv(timeout=10)):
            assert b"internal" not in _bytes(heard)


def _bytes(frame: str | bytes) -> bytes:
    return frame.encode() if isinstance(frame, str) else frame


lines = objects(["type", "data", "data_length", "payload_length"], type="synthesize")
wyoming = st.builds(
    lambda head, data: as_json(head) + b"\n" + as_json(data), lines, objects(["text", "voice"])
)


@fuzzed
@given(data=torn(wyoming))
def test_events_of_wyoming_clients(data: bytes) -> None:
    async def read() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        with suppress(Refusal, ClientLeft):
            while True:
                text_of(await read_wyoming(reader, 100))

    asyncio.run(read())
