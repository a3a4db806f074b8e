"""The Wyoming port, asked with the protocol's own package as Home Assistant asks it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.event import Event
from wyoming.info import Describe, Info
from wyoming.ping import Ping, Pong
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeStopped,
    SynthesizeTextFormat,
    SynthesizeVoice,
)

from cosyserve.audio import AudioFormat, encode
from cosyserve.errors import CosyError, StoreError
from cosyserve.gateway.listening import listen
from cosyserve.gateway.wyoming.server import wyoming_server
from cosyserve.settings import Settings
from tests.gateway.serving import Running, opened, serving
from tests.gateway.sine_engine import SineEngine, voice_of
from tests.gateway.talking import talking
from tests.waiting import wait_until


@dataclass
class Door:
    server: Running
    port: int

    def talk(self, conversation: Callable[[AsyncTcpClient], Awaitable[None]]) -> None:
        async def run() -> None:
            async with asyncio.timeout(30), AsyncTcpClient("127.0.0.1", self.port) as client:
                await conversation(client)

        asyncio.run(run())

    def wait_until_gone(self) -> None:
        self.server.wait_until_idle()
        wait_until(lambda: not self.server.app.state.connections.count)


@dataclass
class Answer:
    audio: bytes = b""
    events: list[Event] = field(default_factory=list)

    @property
    def kinds(self) -> list[str]:
        return [event.type for event in self.events]

    @property
    def error(self) -> Error:
        (error,) = (Error.from_event(e) for e in self.events if Error.is_type(e.type))
        return error


async def hear(client: AsyncTcpClient, until: Callable[[str], bool] = AudioStop.is_type) -> Answer:
    """All that comes until such an event, or until the server hangs up."""
    answer = Answer()
    while event := await client.read_event():
        if AudioChunk.is_type(event.type):
            chunk = AudioChunk.from_event(event)
            assert (chunk.rate, chunk.width, chunk.channels) == (24_000, 2, 1)
            answer.audio += chunk.audio
        else:
            answer.events.append(event)
        if until(event.type):
            break
    return answer


@pytest.fixture(scope="module")
def shared_door() -> Iterator[Door]:
    settings = Settings(max_requests=1, max_connections=8, max_idle_seconds=4)
    with (
        serving(SineEngine(), settings) as server,
        listen("127.0.0.1", 0, 10) as listener,
        opened(server, wyoming_server(server.app.state.context, listener)),
    ):
        yield Door(server, listener.getsockname()[1])


@pytest.fixture
def door(shared_door: Door) -> Door:
    shared_door.wait_until_gone()
    shared_door.server.behave()
    return shared_door


def test_what_it_tells_of_itself(door: Door) -> None:
    door.server.engine.voices = {"default": voice_of(0), "ada": voice_of(3, language="en-GB")}

    async def ask(client: AsyncTcpClient) -> None:
        await client.write_event(Ping("still there?").event())
        await client.write_event(Describe().event())
        assert Pong.is_type((await hear(client, Pong.is_type)).kinds[-1])
        told = await client.read_event()
        assert told
        (program,) = Info.from_event(told).tts
        assert program.supports_synthesize_streaming
        assert program.installed
        languages = {voice.name: voice.languages for voice in program.voices}
        assert languages == {"default": ["en-GB"], "ada": ["en-GB"]}

    door.talk(ask)


def test_a_whole_text(door: Door) -> None:
    door.server.engine.voices = {"default": voice_of(0), "ada": voice_of(3, "Hum.")}

    async def ask(client: AsyncTcpClient) -> None:
        for voice in (None, SynthesizeVoice(language="de_AT"), SynthesizeVoice(name="ada")):
            await client.write_event(Synthesize("Twenty 20.", voice=voice).event())
            answer = await hear(client)
            assert answer.audio == encode(door.server.engine.samples, AudioFormat.PCM)
            assert [AudioStart.is_type(answer.kinds[0]), len(answer.kinds)] == [True, 2]

    door.talk(ask)
    requests = door.server.engine.requests
    assert [request.text for request in requests] == 3 * ["Twenty 20."]
    assert [len(request.voice.speech_tokens) for request in requests] == [0, 0, 3]


def test_text_in_pieces_as_home_assistant_sends_it(door: Door) -> None:
    """It sends the whole text as well, for servers that know no pieces."""
    door.server.behave(held=True)
    pieces = ["Audio comes ", "while ", "text does."]

    async def ask(client: AsyncTcpClient) -> None:
        await client.write_event(SynthesizeStart(voice=SynthesizeVoice(name="default")).event())
        await client.write_event(SynthesizeChunk(pieces[0]).event())
        answer = await hear(client, AudioChunk.is_type)  # before the rest of the text
        for piece in pieces[1:]:
            await client.write_event(SynthesizeChunk(piece).event())
        await client.write_event(Synthesize("".join(pieces)).event())
        await client.write_event(SynthesizeStop().event())
        door.server.engine.held = False
        rest = await hear(client, SynthesizeStopped.is_type)
        audio = answer.audio + rest.audio
        assert audio == encode(door.server.engine.samples, AudioFormat.PCM)
        assert [*answer.kinds, *rest.kinds] == ["audio-start", "audio-stop", "synthesize-stopped"]
        await client.write_event(Synthesize("Once more.").event())
        assert (await hear(client)).audio == audio

    door.talk(ask)
    assert door.server.engine.texts == ["".join(pieces), "Once more."]


def test_speech_that_ends_before_its_text(door: Door) -> None:
    """What still comes of the text, whole or in pieces, is not spoken a second time."""
    door.server.behave(finish="length")

    async def ask(client: AsyncTcpClient) -> None:
        for _ in range(2):
            await client.write_event(SynthesizeStart().event())
            await client.write_event(SynthesizeChunk("As long as it may be.").event())
            answer = await hear(client, SynthesizeStopped.is_type)
            assert answer.kinds == ["audio-start", "audio-stop", "synthesize-stopped"]
            await client.write_event(SynthesizeChunk(" And more.").event())
            await client.write_event(Synthesize("As long as it may be. And more.").event())
            await client.write_event(SynthesizeStop().event())
        await client.write_event(Synthesize("Once more.").event())
        assert (await hear(client)).kinds == ["audio-start", "audio-stop"]

    door.talk(ask)
    assert len(door.server.engine.requests) == 3


def test_a_store_that_fails_is_no_bug(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unreachable() -> None:
        raise StoreError("the voice store can't be used now")

    monkeypatch.setattr(door.server.app.state.context.voices, "names", unreachable)

    async def ask(client: AsyncTcpClient) -> None:
        await client.write_event(Describe().event())
        assert (await hear(client)).error.code == "voice_store_unavailable"

    door.talk(ask)


REFUSED: dict[str, Event] = {
    "voice_not_found": Synthesize("Hello.", voice=SynthesizeVoice(name="nobody")).event(),
    "input_too_long": Synthesize("x" * 4097).event(),
    "out_of_order": SynthesizeChunk("Hello.").event(),
    "invalid_value": Event("synthesize", {"text": 5}),
    "invalid_value: SSML": Synthesize("<s/>", text_format=SynthesizeTextFormat.SSML).event(),
    "invalid_value: voice": Event("synthesize", {"text": "Hello.", "voice": {"name": 5}}),
    "invalid_value: nothing": Synthesize(" ").event(),
}


@pytest.mark.parametrize("code", REFUSED)
def test_errors_end_the_connection(door: Door, code: str) -> None:
    async def ask(client: AsyncTcpClient) -> None:
        await client.write_event(Event("who-knows"))  # is for somebody else
        await client.write_event(REFUSED[code])
        answer = await hear(client)
        assert answer.error.code == code.partition(":")[0]
        assert answer.kinds == ["error"]

    door.talk(ask)
    door.wait_until_gone()


def test_a_failure_is_no_end_of_the_audio(door: Door) -> None:
    door.server.behave(error=CosyError("worn out"), error_at=2)

    async def ask(client: AsyncTcpClient) -> None:
        await client.write_event(Synthesize("Hello.").event())
        answer = await hear(client)
        assert answer.audio
        assert answer.kinds == ["audio-start", "error"]
        assert answer.error.text == "worn out"

    door.talk(ask)


def test_a_text_that_is_too_long_or_stops_coming(door: Door) -> None:
    async def write(client: AsyncTcpClient, *pieces: str) -> str | None:
        await client.write_event(SynthesizeStart().event())
        for piece in pieces:
            await client.write_event(SynthesizeChunk(piece).event())
        return (await hear(client)).error.code

    async def too_long(client: AsyncTcpClient) -> None:
        assert await write(client, "x" * 4000, "x" * 97) == "input_too_long"

    async def too_slow(client: AsyncTcpClient) -> None:
        assert await write(client, "Hello.") == "timeout"

    door.talk(too_long)
    door.talk(too_slow)


HOSTILE = [
    b"\n",
    b"[]\n",
    b"5\n",
    b"[" * 10_000 + b"\n",
    b'{"data_length": 1}\n{',
    b'{"type": "describe", "data_length": 99999999999}\n',
    b'{"type": "describe", "data_length": -1}\n',
    b'{"type": "describe", "payload_length": "many"}\n',
    b'{"type": "describe", "data": 7, "data_length": 2}\n{}',
    b'{"type": "synthesize", "data": [7]}\n',
    b'{"type": "describe", "data_length": 65537}\n',
    b'{"type": "describe", "payload_length": 1}\n',
]


@pytest.mark.parametrize("sent", HOSTILE, ids=range(len(HOSTILE)))
def test_whatever_is_no_event_is_refused(door: Door, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", door.port), timeout=10) as client:
        client.sendall(sent)
        head, _, rest = client.makefile("rb").read().partition(b"\n")
    assert json.loads(head)["type"] == "error"
    assert json.loads(rest)["code"] == "invalid_event"
    door.wait_until_gone()


def test_a_line_without_end_is_not_kept(door: Door) -> None:
    with socket.create_connection(("127.0.0.1", door.port), timeout=10) as client:
        with pytest.raises(ConnectionError):
            client.sendall(b"x" * (1 << 26))
        door.wait_until_gone()


@asynccontextmanager
async def speaking(door: Door) -> AsyncIterator[AsyncTcpClient]:
    async with asyncio.timeout(30), AsyncTcpClient("127.0.0.1", door.port) as client:
        await client.write_event(Synthesize("Hello.").event())
        await hear(client, AudioChunk.is_type)
        yield client


@pytest.mark.parametrize("politely", [True, False])
def test_who_leaves_frees_the_session(door: Door, politely: bool) -> None:
    door.server.behave(held=True)

    async def leave() -> None:
        async with speaking(door) as client:
            if not politely:
                client._writer.transport.abort()  # type: ignore[union-attr]

    asyncio.run(leave())
    door.wait_until_gone()


def test_limits_are_those_of_all_requests(door: Door) -> None:
    door.server.behave(held=True)

    async def crowd() -> None:
        async with speaking(door) as first:
            async with AsyncTcpClient("127.0.0.1", door.port) as second:
                await second.write_event(Synthesize("Hello.").event())
                assert (await hear(second)).error.code == "too_many_requests"
            await first.write_event(Synthesize("Hello.").event())
            assert (await hear(first)).error.code == "out_of_order"

    asyncio.run(crowd())
    door.wait_until_gone()
    door.server.behave()
    assert door.server.say().status_code == 200


def test_connections_are_a_quarter_of_all_and_must_not_be_silent(door: Door) -> None:
    async def crowd() -> None:
        async with AsyncTcpClient("127.0.0.1", door.port) as first:
            async with AsyncTcpClient("127.0.0.1", door.port):
                await asyncio.sleep(0.1)
                async with AsyncTcpClient("127.0.0.1", door.port) as third:
                    assert (await hear(third)).error.code == "too_many_requests"
                with talking(door.server.url):  # others still find a place
                    pass
            assert (await hear(first)).error.code == "timeout"

    asyncio.run(crowd())
