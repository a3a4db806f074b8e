"""What holds in every dialect: audio, barge-in, limits, keys, what is counted and logged."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from cosyserve.audio import AudioFormat, encode
from cosyserve.errors import OverloadError
from cosyserve.gateway.dialects.elevenlabs import FIRST_MESSAGE_BYTES
from cosyserve.settings import Settings
from tests.gateway.dialects.twin import Twin, dialed
from tests.gateway.dialects.twins import (
    STOPPABLE,
    TWINS,
    DashScope,
    Deepgram,
    ElevenLabs,
    Websocket,
)
from tests.gateway.serving import Running, serving
from tests.gateway.talking import close_code
from tests.gateway.test_status import samples
from tests.waiting import wait_until

KEY = "a-key"
every_dialect = pytest.mark.parametrize("kind", TWINS)


@pytest.fixture(scope="module")
def narrow() -> Iterator[Running]:
    """A server with a key, and with little room."""
    settings = Settings(max_input_characters=40, max_requests_per_key=1, max_body_bytes=5000)
    with serving(settings=settings, keys=[KEY]) as running:
        yield running


@pytest.fixture(scope="module")
def impatient() -> Iterator[Running]:
    with serving(settings=Settings(max_idle_seconds=0.5)) as running:
        yield running


def headers(kind: type[Twin], key: str = KEY) -> dict[str, str]:
    name, value = kind.key_header
    return {name: value.replace("KEY", key)}


@every_dialect
def test_pieces_are_spoken_as_they_come(server: Running, kind: type[Twin]) -> None:
    with dialed(server, kind) as twin:
        twin.start()
        twin.text("One ")
        first = twin.hear_audio()
        twin.text("two.")
        twin.end()
        rest = twin.hear()
        assert first + rest.audio == encode(server.engine.samples, AudioFormat.PCM)
        assert not twin.error(rest.last)
    assert [text.strip() for text in server.engine.texts] == ["One two."]


@every_dialect
def test_one_text_after_the_other(server: Running, kind: type[Twin]) -> None:
    with dialed(server, kind) as twin:
        for name in ("a", "b", "a"):
            twin.name = name
            assert twin.say(f"Text {name}.").audio == encode(server.engine.samples, AudioFormat.PCM)
    assert [t.strip() for t in server.engine.texts] == ["Text a.", "Text b.", "Text a."]


@pytest.mark.parametrize("kind", STOPPABLE)
def test_marks_that_are_flushed_wait_for_the_text_behind_them(
    server: Running, kind: type[Twin]
) -> None:
    with dialed(server, kind) as twin:
        twin.start()
        for piece in ("...", "Hello", "!", " \N{GRINNING FACE}", " How are you?", "---"):
            twin.text(piece)
            twin.flush()
        spoken = ["...Hello", "! \N{GRINNING FACE} How are you?"]
        wait_until(lambda: server.engine.texts == spoken)
        twin.end()
        assert not twin.error(twin.hear().last)
    server.wait_until_idle()
    assert server.engine.texts == spoken


@pytest.mark.parametrize("kind", [kind for kind in TWINS if kind is not Websocket])
@pytest.mark.parametrize("text", [" ", "!", "\N{GRINNING FACE}..."])
def test_a_text_without_words_ends_as_a_blank_one(
    server: Running, kind: type[Twin], text: str
) -> None:
    with dialed(server, kind) as twin:
        heard = twin.say(text)
        assert twin.is_over(heard.last)
        assert not heard.audio
        twin.name = "b"
        assert not twin.error(twin.say().last)
    assert server.engine.sessions == 1


@pytest.mark.parametrize("kind", STOPPABLE)
def test_an_interruption_stops_the_engine(server: Running, kind: type[Twin]) -> None:
    server.behave(held=True)
    with dialed(server, kind) as twin:
        twin.start()
        twin.text("A long text, of which")
        twin.hear_audio()
        assert server.engine.open_sessions == 1
        twin.cancel()
        assert not twin.error(twin.hear().last)
        assert server.engine.open_sessions == 0
        made = server.engine.made
        server.engine.held = False
        twin.name = "another"
        assert twin.say("Other words.").audio == encode(server.engine.samples, AudioFormat.PCM)
        assert server.engine.made == made + server.engine.chunks


@every_dialect
def test_a_client_that_leaves_stops_the_engine(server: Running, kind: type[Twin]) -> None:
    server.behave(held=True)
    with dialed(server, kind) as twin:
        twin.start()
        twin.text("Nobody will hear this.")
        twin.hear_audio()
        twin.socket.socket.close()
    server.wait_until_idle()


@every_dialect
def test_an_error_is_told_and_the_next_text_is_spoken(server: Running, kind: type[Twin]) -> None:
    server.behave(error=OverloadError("too much to do", retry_after=1), error_at=1)
    with dialed(server, kind) as twin:
        assert "too much to do" in twin.error(twin.say().last)
        server.behave()
        twin.name = "b"
        assert not twin.error(twin.say().last)


@every_dialect
def test_bad_messages_end_nothing(server: Running, kind: type[Twin]) -> None:
    with dialed(server, kind) as twin:
        for bad in ("{", "[]", "1", b"\0", '{"text": 1, "context_id": [], "header": 5}'):
            twin.socket.send(bad)
            event = twin.hear_next()
            assert isinstance(event, dict)
            assert twin.error(event), bad
        assert not twin.error(twin.say().last)


@every_dialect
def test_limits(narrow: Running, kind: type[Twin]) -> None:
    narrow.behave(held=True)
    key = {"additional_headers": headers(kind)}
    with dialed(narrow, kind, **key) as twin, dialed(narrow, kind, **key) as late:
        twin.start()
        twin.text("Hello.")
        twin.hear_audio()
        assert "limit" in late.error(late.say("Me, too!").last)
        twin.text("x" * 40)
        assert "limit" in twin.error(twin.hear().last)
        narrow.engine.held = False
        twin.text("The rest of it is lost.")
        twin.end()
        twin.send({"text": "x" * 6000})
        with pytest.raises(ConnectionClosed) as closed:
            [twin.hear_next() for _ in range(9)]
        assert closed.value.rcvd
        assert closed.value.rcvd.code == 1009
    narrow.wait_until_idle()


@every_dialect
def test_keys(narrow: Running, kind: type[Twin]) -> None:
    with dialed(narrow, kind, additional_headers=headers(kind)) as twin:
        assert not twin.error(twin.say().last)
    with (
        pytest.raises(InvalidStatus) as refused,
        dialed(narrow, kind, additional_headers=headers(kind, "wrong")),
    ):
        pass
    assert refused.value.response.status_code == 401


def test_a_key_in_the_address(narrow: Running) -> None:
    path = "/tts/websocket?cartesia_version=1&api_key="
    (cartesia,) = (kind for kind in TWINS if kind.__name__ == "Cartesia")
    with dialed(narrow, cartesia, path + KEY) as twin:
        assert not twin.error(twin.say().last)
    for kind, address in ((cartesia, path + "wrong"), (Deepgram, f"/v1/speak?api_key={KEY}")):
        with pytest.raises(InvalidStatus), dialed(narrow, kind, address):
            pass


def test_a_key_in_the_first_message(narrow: Running) -> None:
    good = [("xi_api_key", KEY), ("xi-api-key", KEY), ("authorization", f"Bearer {KEY}")]
    for field, value in good:
        with dialed(narrow, ElevenLabs) as twin:
            twin.tell(text=" ", **{field: value})
            assert not twin.error(twin.say().last)
    sessions = narrow.engine.sessions
    for first in ({"text": "Hello. "}, {"text": "Hello. ", "xi_api_key": "wrong"}, {"text": []}):
        with dialed(narrow, ElevenLabs) as twin:
            twin.tell(**first)
            assert twin.error(twin.hear().last)
            assert close_code(twin.socket) == 1008
    assert narrow.engine.sessions == sessions


def test_messages_are_small_until_there_is_a_key() -> None:
    large = {"text": " ", "unknown": "x" * 2 * FIRST_MESSAGE_BYTES}
    with serving(keys=[KEY]) as guarded:
        with dialed(guarded, ElevenLabs) as twin:
            twin.tell(**large, xi_api_key=KEY)
            assert close_code(twin.socket) == 1009
        with dialed(guarded, ElevenLabs) as twin:
            twin.tell(text=" ", xi_api_key=KEY)
            assert not twin.error(twin.say().last)
            twin.tell(**large)
            assert not twin.error(twin.say().last)


@every_dialect
def test_a_silent_client_is_sent_away(impatient: Running, kind: type[Twin]) -> None:
    with dialed(impatient, kind) as twin:
        assert "connect again" in twin.error(twin.hear().last)
        assert close_code(twin.socket) == 1008


@every_dialect
def test_text_that_does_not_go_on_is_given_up(impatient: Running, kind: type[Twin]) -> None:
    with dialed(impatient, kind) as twin:
        twin.start()
        twin.text("a")
        while not twin.error(heard := twin.hear().last):  # Deepgram's `Flush` is answered
            pass
        assert "no text came" in twin.error(heard)


@every_dialect
def test_what_is_logged_and_counted(
    server: Running, kind: type[Twin], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "cosyserve.gateway")
    with dialed(server, kind, additional_headers={"x-request-id": "call"}) as twin:
        twin.say("Hello.")
    wait_until(lambda: len(caplog.records) >= 2)
    lines = {line["request_id"]: line for line in map(json.loads, caplog.messages)}
    utterance = lines["call.1"]
    assert utterance["method"] == kind.__name__.upper()
    assert utterance["status"] == 200
    assert utterance["characters"] >= 6
    route = utterance["path"]
    assert route == kind.path.partition("?")[0].replace("/default/", "/{voice}/")
    counted = samples(server.http.get("/metrics").text)
    assert counted["cosyserve_request_seconds_count", route, "200"] >= 1


def test_unknown_voices_and_models(server: Running) -> None:
    with dialed(server, DashScope) as twin:
        assert "no voice named 'longxiaochun'" in twin.error(twin.say(voice="longxiaochun").last)
        twin.name = "b"
        twin.act("run-task", model="gpt-9", parameters={"voice": "default", "format": "pcm"})
        assert "no model named 'gpt-9'" in twin.error(twin.hear().last)
    with dialed(server, Deepgram, "/v1/speak?model=aura-2-thalia-en") as twin:
        assert "aura-2-thalia-en" in twin.error(twin.say().last)


@every_dialect
def test_without_an_upgrade(server: Running, kind: type[Twin]) -> None:
    answer = server.http.get(kind.path)
    assert answer.status_code == 426
    assert answer.json()["error"]["code"] == "upgrade_required"
