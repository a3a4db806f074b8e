"""What a client of the WebSocket may ask for, how long it may take, and who it must be."""

from __future__ import annotations

import base64
import contextlib
import json
import time
from collections.abc import Iterator

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from cosyserve.settings import Settings
from tests.gateway.serving import Running, serving
from tests.gateway.sine_engine import SineEngine
from tests.gateway.talking import close_code, talking


@pytest.fixture(scope="module")
def narrow() -> Iterator[Running]:
    settings = Settings(
        max_body_bytes=200_000,
        max_input_characters=12_000,
        max_requests=1,
        max_connections=2,
    )
    with serving(settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def impatient() -> Iterator[Running]:
    with serving(settings=Settings(max_idle_seconds=1.0)) as running:
        yield running


def test_ten_thousand_tiny_pieces(narrow: Running) -> None:
    narrow.behave()
    with talking(narrow.url) as talk:
        assert talk.say(*("ab" * 5000)).last["finish_reason"] == "stop"
        for _ in range(10_000):
            talk.text("")
        assert talk.error()["code"] == "out_of_order"  # once
        assert talk.say().last["finish_reason"] == "stop"
    assert narrow.engine.texts == ["ab" * 5000, "Hello."]


def test_a_text_that_is_too_long(narrow: Running) -> None:
    narrow.behave(delay=30.0)
    with talking(narrow.url) as talk:
        talk.start()
        talk.text("a" * 6000, "b" * 6000, "c")
        error = talk.error()
        assert (error["code"], error["param"]) == ("input_too_long", "text")
        assert "12000 characters" in error["message"]
        assert narrow.engine.open_sessions == 0
        talk.text("d", "e")
        narrow.behave()
        assert talk.say().last["type"] == "done"


def test_a_message_that_is_too_large(narrow: Running) -> None:
    narrow.behave(delay=30.0)
    with talking(narrow.url) as talk:
        talk.start()
        talk.text("Hello.")
        talk.hear("started")
        talk.socket.recv()
        talk.socket.send(" " * 200_001)
        assert close_code(talk.socket) == 1009
    narrow.wait_until_idle()


def test_one_connection_too_many(narrow: Running) -> None:
    with talking(narrow.url), talking(narrow.url):
        with pytest.raises(InvalidStatus) as refused, talking(narrow.url):
            pass
        answer = refused.value.response
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert json.loads(answer.body)["error"]["code"] == "too_many_requests"
        assert answer.headers["x-request-id"]
        assert narrow.http.get("/health").status_code == 200


def test_an_utterance_is_a_request_while_it_lasts(narrow: Running) -> None:
    narrow.behave(delay=30.0)
    with talking(narrow.url) as first, talking(narrow.url) as second:
        first.start()
        first.text("Hello.")
        first.hear("started")
        second.start()
        refused = second.hear().last
        assert refused["error"]["type"] == "rate_limit_error"
        assert (refused["error"]["code"], refused["retry_after"]) == ("too_many_requests", 1)
        assert narrow.say().status_code == 429
        first.send("cancel")
        first.hear("done")
        narrow.behave()
        for talk in (second, first, second):
            assert talk.say().last["finish_reason"] == "stop"
        assert narrow.say().status_code == 200


def test_utterances_without_a_text_take_nobodys_place(narrow: Running) -> None:
    with talking(narrow.url) as first, talking(narrow.url) as second:
        for talk in (first, second):
            talk.start()
            talk.hear("started")
        assert narrow.say().status_code == 200
        for talk in (first, second):
            talk.text("Hello.")
            talk.send("end")
            assert talk.hear("done").last["finish_reason"] == "stop"


def test_what_contexts_are_started_with_is_bounded(narrow: Running) -> None:
    narrow.behave()
    with talking(narrow.url) as talk:
        for number in range(3):
            talk.start(context=f"c{number}", unknown="x" * 60_000)
            talk.hear("started")
        talk.start(context="c3", unknown="x" * 60_000)
        refused = talk.hear().last
        assert (refused["context"], refused["error"]["code"]) == ("c3", "body_too_large")
        assert "larger than 200000 bytes: end some" in refused["error"]["message"]
        talk.send("cancel", context="c1")
        talk.hear("done")
        talk.start(context="c3", unknown="x" * 60_000)
        talk.hear("started")


def test_an_utterance_keeps_its_place_from_its_first_text_on(narrow: Running) -> None:
    narrow.behave(delay=0.5)
    with talking(narrow.url) as first, talking(narrow.url) as second:
        second.start()
        second.hear("started")
        first.start()
        first.text("Hello.")
        first.hear("started")
        second.text("Hello.")
        assert second.error()["code"] == "too_many_requests"
        first.send("end")
        assert first.hear().last["finish_reason"] == "stop"


def test_whoever_never_begins_is_sent_away(impatient: Running) -> None:
    with talking(impatient.url) as talk:
        codes = []
        for _ in range(1000):
            with contextlib.suppress(ConnectionClosed):
                talk.socket.send(b"junk")  # is no beginning
            codes.append(talk.error()["code"])
            if codes[-1] == "timeout":
                break
            time.sleep(0.01)
        assert set(codes) == {"invalid_json", "timeout"}
        assert close_code(talk.socket) == 1008


@pytest.mark.parametrize("pieces", [(), (" ",), ("Hello.",)])
def test_a_text_that_stops_coming(impatient: Running, pieces: tuple[str, ...]) -> None:
    impatient.behave()
    with talking(impatient.url) as talk:
        talk.start()
        talk.text(*pieces)
        error = talk.error()
        assert error["code"] == "timeout"
        assert "1 s" in error["message"]
        assert impatient.engine.open_sessions == 0
        time.sleep(1.2)  # between utterances there is more time
        talk.send("end")
        assert talk.say().last["type"] == "done"


def test_time_is_limited() -> None:
    with (
        serving(SineEngine(delay=30.0), Settings(max_request_seconds=0.4)) as server,
        talking(server.url) as talk,
    ):
        event = talk.say().last
        assert event["error"]["code"] == "timeout"
        assert "0.4 s" in event["error"]["message"]
        server.wait_until_idle()
        talk.send("cancel")
        assert talk.error()["message"].startswith("nothing was asked for")
        assert close_code(talk.socket) == 1008


KEYS = ("first-key", "zweiter-Schlüssel")


@pytest.fixture(scope="module")
def guarded() -> Iterator[Running]:
    with serving(keys=KEYS, settings=Settings(max_requests_per_key=1)) as running:
        yield running


def as_subprotocol(key: str) -> str:
    return "cosyserve.key." + base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"additional_headers": {"Authorization": "Bearer wrong"}},
        {"additional_headers": {"Authorization": "Basic first-key"}},
        {"subprotocols": ["cosyserve"]},
        {"subprotocols": ["cosyserve", "first-key"]},
        {"subprotocols": ["cosyserve", as_subprotocol("wrong")]},
        {"subprotocols": ["cosyserve", "cosyserve.key."]},
        {"subprotocols": ["cosyserve", "cosyserve.key.~"]},
        {"origin": "http://127.0.0.1"},
    ],
)
def test_without_a_key_there_is_no_connection(guarded: Running, options: dict[str, object]) -> None:
    with pytest.raises(InvalidStatus) as refused, talking(guarded.url, **options):
        pass
    assert refused.value.response.status_code == 401
    error = json.loads(refused.value.response.body)["error"]
    assert error["code"] == "invalid_api_key"


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("origin", [None, "https://elsewhere.example", "null"])
def test_each_key_opens_from_anywhere(guarded: Running, key: str, origin: str | None) -> None:
    offered = ["cosyserve", as_subprotocol(key)]
    with talking(guarded.url, subprotocols=offered, origin=origin) as talk:
        assert talk.socket.subprotocol == "cosyserve"  # and not the key
        assert talk.say().last["type"] == "done"


def test_a_key_in_a_header(guarded: Running) -> None:
    headers = {"Authorization": f"Bearer {KEYS[0]}"}
    with talking(guarded.url, additional_headers=headers) as talk:
        assert talk.say().last["type"] == "done"


def test_a_key_has_its_own_limit(guarded: Running) -> None:
    guarded.behave(delay=30.0)
    first, second = (["cosyserve", as_subprotocol(key)] for key in KEYS)
    with (
        talking(guarded.url, subprotocols=first) as talk,
        talking(guarded.url, subprotocols=first) as again,
        talking(guarded.url, subprotocols=second) as other,
    ):
        for each in (talk, other):
            each.start()
            each.text("Hello.")
            each.hear("started")
        again.start()
        assert again.error()["code"] == "too_many_requests"
        headers = {"Authorization": f"Bearer {KEYS[0]}"}
        assert guarded.http.get("/v1/models", headers=headers).status_code == 429
        talk.send("cancel")
        talk.hear("done")
        again.start()
        again.hear("started")
    guarded.wait_until_idle()
    assert guarded.http.get("/v1/models", headers=headers).status_code == 200


def test_without_keys_pages_of_other_hosts_may_not(server: Running) -> None:
    for origin in ("https://elsewhere.example", "http://127.0.0.1:1", "null", "", "http://["):
        with pytest.raises(InvalidStatus) as refused, talking(server.url, origin=origin):
            pass
        assert refused.value.response.status_code == 403
        assert b"origin_not_allowed" in refused.value.response.body
    with talking(server.url, origin=server.url) as talk:
        assert talk.say().last["type"] == "done"


def test_there_is_one_websocket(server: Running) -> None:
    with pytest.raises(InvalidStatus) as refused, talking(server.url + "/v1"):
        pass
    assert refused.value.response.status_code == 403
