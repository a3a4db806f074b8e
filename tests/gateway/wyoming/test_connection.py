"""The Wyoming port, asked with the protocol's own package as Home Assistant asks it."""

from __future__ import annotations

import pytest
from wyoming.audio import AudioChunk, AudioStart
from wyoming.client import AsyncTcpClient
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
from tests.gateway.sine_engine import voice_of
from tests.gateway.wyoming.asking import Door, hear


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


def test_a_text_that_is_too_long_or_stops_coming(door: Door, impatient: Door) -> None:
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
    impatient.talk(too_slow)
