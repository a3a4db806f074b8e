"""The original's gRPC runtime, asked by a client with a description of its own of the messages."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import pytest

from cosyserve.audio import AudioFormat, encode
from cosyserve.contracts import Mode
from cosyserve.errors import CosyError, InputError, OverloadError
from cosyserve.gateway.keys import KeyRing
from cosyserve.gateway.original.grpc_server import grpc_server
from cosyserve.settings import Settings
from tests.gateway.serving import Running, opened, serving
from tests.gateway.sine_engine import sine
from tests.waiting import wait_until

METHOD = "/cosyvoice.CosyVoice/Inference"
PROMPT = (sine(32_000) * 2**15).astype("<i2").tobytes()  # two seconds of 16 kHz
TEXT = "你好。"


def field(number: int, value: str | bytes) -> bytes:
    """A field of a message as it is on the wire: its number, its length, its bytes."""
    data = value.encode() if isinstance(value, str) else value
    return bytes([number << 3 | 2]) + varint(len(data)) + data


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def audio_of(response: bytes) -> bytes:
    """What a Response carries, all of which is its field 1."""
    assert response[0] == 1 << 3 | 2
    length, shift, at = 0, 0, 1
    while True:
        byte = response[at]
        length |= (byte & 127) << shift
        shift, at = shift + 7, at + 1
        if byte < 128:
            break
    assert len(response) == at + length
    return response[at:]


SFT = field(1, field(1, "中文女") + field(2, TEXT))
ZERO_SHOT = field(2, field(1, TEXT) + field(2, "希望。") + field(3, PROMPT))
CROSS_LINGUAL = field(3, field(1, TEXT) + field(2, PROMPT))
INSTRUCT = field(4, field(1, TEXT) + field(2, "default") + field(3, "Fight!"))


@dataclass
class Client:
    server: Running
    port: int
    host: str

    @contextmanager
    def calling(self, request: bytes, **options: Any) -> Iterator[Any]:
        with grpc.insecure_channel(f"{self.host}:{self.port}") as channel:
            yield channel.unary_stream(METHOD)(request, timeout=20, **options)

    @contextmanager
    def silent(self) -> Iterator[Any]:
        """A call that asks for nothing."""
        over = threading.Event()

        def nothing() -> Iterator[bytes]:
            over.wait()
            yield from ()

        with grpc.insecure_channel(f"{self.host}:{self.port}") as channel:
            try:
                yield channel.stream_stream(METHOD)(nothing(), timeout=20)
            finally:
                over.set()

    def ask(self, request: bytes, **options: Any) -> bytes:
        with self.calling(request, **options) as call:
            return b"".join(audio_of(response) for response in call)

    def refused(self, request: bytes, **options: Any) -> tuple[Any, str]:
        with pytest.raises(grpc.RpcError) as refused:
            self.ask(request, **options)
        return refused.value.code(), refused.value.details()


@contextmanager
def listening(
    keys: Sequence[str] = (), max_conc: int = 4, host: str = "127.0.0.1"
) -> Iterator[Client]:
    with serving(settings=Settings(max_idle_seconds=1), keys=keys) as server:
        door = grpc_server(server.app.state.context, KeyRing(keys), f"{host}:0", max_conc)
        with opened(server, door) as port:
            yield Client(server, port, host)


@pytest.fixture(scope="module")
def shared_client() -> Iterator[Client]:
    with listening(max_conc=2) as client:
        yield client


@pytest.fixture
def client(shared_client: Client) -> Client:
    shared_client.server.wait_until_idle()
    shared_client.server.behave()
    return shared_client


@pytest.mark.parametrize(
    ("request_bytes", "mode", "instruction", "prompt"),
    [
        (SFT, Mode.PRESET, "", ""),
        (ZERO_SHOT, Mode.ZERO_SHOT, "", "希望。"),
        (CROSS_LINGUAL, Mode.CROSS_LINGUAL, "", ""),
        (INSTRUCT, Mode.INSTRUCT, "Fight!", ""),
    ],
    ids=["sft", "zero_shot", "cross_lingual", "instruct"],
)
def test_every_mode(
    client: Client, request_bytes: bytes, mode: Mode, instruction: str, prompt: str
) -> None:
    engine = client.server.engine
    assert client.ask(request_bytes) == encode(engine.samples, AudioFormat.PCM)
    (request,) = engine.requests
    assert (request.text, request.mode, request.instruction) == (TEXT, mode, instruction)
    assert request.voice.prompt_text == prompt
    assert len(request.voice.speech_tokens) == (50 if PROMPT in request_bytes else 0)


def test_audio_comes_inside_a_sentence(client: Client) -> None:
    client.server.behave(held=True)
    with client.calling(SFT) as call:
        first = audio_of(next(call))
        client.server.engine.held = False
        rest = b"".join(audio_of(response) for response in call)
    assert first
    assert first + rest == encode(client.server.engine.samples, AudioFormat.PCM)


@pytest.mark.parametrize("politely", [True, False])
def test_who_leaves_frees_the_session(client: Client, politely: bool) -> None:
    client.server.behave(held=True)
    with client.calling(SFT) as call:
        next(call)
        assert client.server.engine.open_sessions == 1
        if politely:
            call.cancel()
    client.server.wait_until_idle()


def test_more_calls_than_max_conc_are_refused(client: Client) -> None:
    client.server.behave(held=True)
    with client.calling(SFT) as first, client.calling(SFT) as second:
        next(first)
        next(second)
        code, _ = client.refused(SFT)
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        client.server.engine.held = False
        assert list(first)
        assert list(second)
    assert client.ask(SFT)


def test_silent_calls_take_no_place_and_end(client: Client) -> None:
    with ExitStack() as stack:
        silent = [stack.enter_context(client.silent()) for _ in range(3)]
        assert client.ask(SFT)
        assert {call.code() for call in silent} == {grpc.StatusCode.DEADLINE_EXCEEDED}
        assert "no request came for 1 s" in silent[0].details()


REFUSED = {
    "no message": b"\xff\xff",
    "no payload": b"",
    "not UTF-8": field(1, field(1, "default") + field(2, b"\xff\xfe")),
    "nothing to say": field(1, field(1, "default")),
    "too long": field(1, field(1, "default") + field(2, "x" * 4097)),
    "no recording": field(3, field(1, TEXT)),
    "half a sample": field(3, field(1, TEXT) + field(2, PROMPT[:-1])),
    "too long a recording": field(3, field(1, TEXT) + field(2, 16 * PROMPT)),
    "too short a recording": field(3, field(1, TEXT) + field(2, PROMPT[:200])),
    "no instruction": field(4, field(1, TEXT) + field(2, "default")),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_bad_input_is_a_clear_error(client: Client, fault: str) -> None:
    code, details = client.refused(REFUSED[fault])
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert details
    assert "internal" not in details
    assert not client.server.engine.requests


def test_errors_have_codes_of_their_own(client: Client) -> None:
    nobody = field(1, field(1, "nobody") + field(2, TEXT))
    assert client.refused(nobody)[0] is grpc.StatusCode.NOT_FOUND
    client.server.behave(error=OverloadError("full", 2))
    assert client.refused(SFT) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
    client.server.behave(error=CosyError("worn out"), error_at=2)
    assert client.refused(SFT) == (grpc.StatusCode.INTERNAL, "worn out")
    client.server.wait_until_idle()


def test_many_calls_at_once_beyond_the_limit_leave_nothing_behind(client: Client) -> None:
    client.server.behave(delay=0.01)
    codes: list[Any] = []

    def call() -> None:
        try:
            codes.append(len(client.ask(SFT)))
        except grpc.RpcError as error:
            codes.append(error.code())

    threads = [threading.Thread(target=call) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    whole = 2 * len(client.server.engine.samples)
    assert set(codes) <= {whole, grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert whole in codes
    client.server.wait_until_idle()
    assert client.server.engine.most_open <= 2


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(("host", "address"), [("127.0.0.1", "127.0.0.1"), ("[::1]", "::1")])
def test_a_client_is_its_address(host: str, address: str, caplog: pytest.LogCaptureFixture) -> None:
    """As it is over HTTP."""
    if host == "[::1]" and not has_ipv6():
        pytest.skip("no IPv6 here")
    caplog.set_level(logging.INFO, "cosyserve.gateway")
    with listening(host=host) as client:
        assert client.ask(SFT)
        wait_until(lambda: caplog.messages)
    (line,) = caplog.messages
    assert json.loads(line)["client"] == address


def test_keys_and_a_port_that_is_taken() -> None:
    with listening(keys=["a-key"]) as guarded:
        assert guarded.refused(SFT)[0] is grpc.StatusCode.UNAUTHENTICATED
        with guarded.silent() as call:
            assert call.code() is grpc.StatusCode.UNAUTHENTICATED
        wrong = [("authorization", "Bearer wrong")]
        assert guarded.refused(SFT, metadata=wrong)[0] is grpc.StatusCode.UNAUTHENTICATED
        assert guarded.ask(SFT, metadata=[("authorization", "Bearer a-key")])
        context = guarded.server.app.state.context
        taken = grpc_server(context, KeyRing(()), f"127.0.0.1:{guarded.port}", 4)
        with pytest.raises(InputError, match="--legacy-grpc-port"), opened(guarded.server, taken):
            pass
