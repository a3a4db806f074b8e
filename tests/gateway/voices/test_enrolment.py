"""Recordings of a crowd: nobody's many hold up another's one, and none outlives its client."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from io import BytesIO
from secrets import token_hex

import httpx
import pytest

from cosyserve.audio import Audio, AudioFormat, decode, encode
from cosyserve.gateway.voices import enrolment
from cosyserve.gateway.voices.decoding import Decoder
from cosyserve.settings import Settings
from tests.gateway.serving import SPEECH, Running, serving
from tests.gateway.sine_engine import sine
from tests.waiting import wait_until

AT_ONCE = enrolment.AT_ONCE
MINE, OTHER = "mine", "other"


def recording(number: int) -> bytes:
    return encode(sine(24_000 + number), AudioFormat.WAV)


async def decode_here(_: Decoder, data: bytes) -> Audio:
    return decode(BytesIO(data))  # processes take their time


class Client:
    """Sends recordings, each in a connection and a thread of its own, and may leave."""

    def __init__(self, server: Running, key: str, send: str) -> None:
        self._server, self._key = server, key
        self._send = {"voice": self._add, "speech": self._say, "infer": self._infer}[send]
        self._threads = ThreadPoolExecutor(8)
        self._connections: list[httpx.Client] = []
        self._answers: list[Future[httpx.Response]] = []

    def send(self, count: int) -> list[Future[httpx.Response]]:
        for _ in range(count):
            http = httpx.Client(
                base_url=self._server.url,
                headers={"Authorization": f"Bearer {self._key}"},
                timeout=20,
            )
            self._connections.append(http)
            self._answers.append(self._threads.submit(self._send, http, len(self._answers)))
        return self._answers[-count:]

    def leave(self) -> None:
        for http in self._connections:
            for connection in http._transport._pool.connections:  # type: ignore[attr-defined]
                connection._connection._network_stream._sock.shutdown(2)

    def close(self) -> None:
        self._threads.shutdown()
        for http in self._connections:
            http.close()

    def _add(self, http: httpx.Client, number: int) -> httpx.Response:
        form = {"name": token_hex(8), "consent": "Ada", "text": self._key}
        return http.post("/v1/audio/voices", data=form, files={"file": recording(number)})

    def _say(self, http: httpx.Client, number: int) -> httpx.Response:
        fields = {"reference_audio": base64.b64encode(recording(number)).decode()}
        body = {"model": "sine", "input": "Hello.", "reference_text": self._key, **fields}
        return http.post(SPEECH, json=body)

    def _infer(self, http: httpx.Client, number: int) -> httpx.Response:
        samples = sine(16_000 + number).tolist()
        data = {
            "reference_wav": ("FP32", samples),
            "reference_text": ("BYTES", [self._key]),
            "target_text": ("BYTES", ["Hello."]),
        }
        inputs = [
            {"name": name, "shape": [1, len(values)], "datatype": kind, "data": values}
            for name, (kind, values) in data.items()
        ]
        return http.post("/v2/models/cosyvoice2/infer", json={"inputs": inputs})


@pytest.fixture(scope="module")
def keyed() -> Iterator[Running]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(enrolment, "WAITING_PER_CLIENT", 4)
        patch.setattr(Decoder, "decode", decode_here)
        with serving(settings=Settings(voice_cache_bytes=0), keys=[MINE, OTHER]) as running:
            yield running


@pytest.fixture
def crowd(keyed: Running) -> Iterator[Callable[[str, str], Client]]:
    keyed.wait_until_idle()
    keyed.behave(embed_held=True)
    clients: list[Client] = []

    def join(key: str, send: str) -> Client:
        clients.append(Client(keyed, key, send))
        return clients[-1]

    yield join
    keyed.engine.embed_held = False
    for client in clients:
        client.close()


def inside(server: Running, count: int) -> bool:
    return bool(server.app.state.gate.inside == count)


@pytest.mark.parametrize("way", ["voice", "speech", "infer"])
def test_another_client_comes_next(
    keyed: Running, crowd: Callable[[str, str], Client], way: str
) -> None:
    many = crowd(MINE, way).send(AT_ONCE + 3)
    wait_until(lambda: inside(keyed, len(many)) and keyed.engine.embedded == AT_ONCE)
    time.sleep(0.1)  # all have come as far as they can
    (one,) = crowd(OTHER, way).send(1)
    wait_until(lambda: inside(keyed, len(many) + 1))
    time.sleep(0.1)
    assert keyed.engine.embedding == AT_ONCE * [MINE]
    keyed.engine.embed_held = False
    assert {answer.result().status_code for answer in [*many, one]} <= {200, 201}
    assert OTHER in keyed.engine.embedding[: AT_ONCE + 2]  # beside one of the others


@pytest.mark.parametrize("way", ["voice", "speech"])
def test_recordings_go_with_their_clients(
    keyed: Running, crowd: Callable[[str, str], Client], way: str
) -> None:
    many = crowd(MINE, way)
    many.send(AT_ONCE + 3)
    wait_until(lambda: inside(keyed, AT_ONCE + 3) and keyed.engine.embedded == AT_ONCE)
    many.leave()
    wait_until(partial(inside, keyed, 0))
    assert keyed.engine.embed_left == keyed.engine.embedded
    (one,) = crowd(OTHER, way).send(1)
    wait_until(lambda: keyed.engine.embedding[-1] == OTHER)
    keyed.engine.embed_held = False
    assert one.result().status_code in (200, 201)


def test_a_client_that_sends_too_many_is_told_to_come_back(
    keyed: Running, crowd: Callable[[str, str], Client]
) -> None:
    many = crowd(MINE, "voice").send(AT_ONCE + 4)
    wait_until(lambda: inside(keyed, len(many)) and keyed.engine.embedded == AT_ONCE)
    time.sleep(0.2)
    (late,) = crowd("mine", "speech").send(1)
    refused = late.result()
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.json()["error"]["type"] == "rate_limit_error"
    assert refused.json()["error"]["code"] == "overloaded"
    assert "4 of your recordings" in refused.json()["error"]["message"]
    (one,) = crowd(OTHER, "voice").send(1)
    wait_until(lambda: inside(keyed, len(many) + 1))
    keyed.engine.embed_held = False
    assert {answer.result().status_code for answer in [*many, one]} == {201}
