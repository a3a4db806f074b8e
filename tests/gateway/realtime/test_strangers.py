"""Whom the Realtime API lets in, and how much they may ask."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from cosyserve.settings import Settings
from tests.gateway.realtime.talking import message, talking, wait_until_gone
from tests.gateway.serving import Running, serving
from tests.gateway.sine_engine import SineEngine
from tests.gateway.talking import close_code

KEY = "a-key"
HEADERS = {"additional_headers": {"Authorization": f"Bearer {KEY}"}}


@pytest.fixture(scope="module")
def narrow() -> Iterator[Running]:
    settings = Settings(max_requests=1, max_connections=2)
    with serving(SineEngine(), settings, keys=[KEY]) as running:
        yield running


@pytest.mark.parametrize(
    ("query", "options", "status"),
    [
        ("", {}, 401),
        ("", {"additional_headers": {"Authorization": "Bearer wrong"}}, 401),
        ("", {"subprotocols": ["realtime", "openai-insecure-api-key.wrong"]}, 401),
        ("?model=whisper-1", HEADERS, 404),
    ],
)
def test_who_is_not_let_in(
    narrow: Running, query: str, options: dict[str, Any], status: int
) -> None:
    with pytest.raises(InvalidStatus) as refused, talking(narrow, query, **options):
        pass
    assert refused.value.response.status_code == status


def test_a_page_sends_its_key_as_openais_pages_do(narrow: Running) -> None:
    offered = ["realtime", f"openai-insecure-api-key.{KEY}"]
    with talking(narrow, subprotocols=offered, origin="https://elsewhere.example") as talk:
        assert talk.socket.subprotocol == "realtime"
        assert talk.say("Hello.")[-1]["response"]["status"] == "completed"


def test_limits_are_those_of_all_requests(narrow: Running) -> None:
    narrow.behave(held=True)
    with talking(narrow, **HEADERS) as first, talking(narrow, **HEADERS) as second:
        with pytest.raises(InvalidStatus) as refused, talking(narrow, **HEADERS):
            pass
        assert refused.value.response.status_code == 429
        first.send("response.create", response={"input": [message("Hello.")]})
        first.hear("response.output_audio.delta")
        second.send("response.create", response={"input": [message("Hello.")]})
        assert second.error()["code"] == "too_many_requests"
        first.send("response.cancel")
        first.hear("response.done")
    wait_until_gone(narrow)


def test_who_never_asks_is_sent_away() -> None:
    with (
        serving(settings=Settings(max_idle_seconds=1.0)) as impatient,
        talking(impatient) as talk,
        talking(impatient) as silent,
    ):
        talk.send("session.update", session={})
        talk.next()
        assert silent.error()["code"] == "timeout"
        assert close_code(silent.socket) == 1008
        assert talk.say("Hello.")[-1]["response"]["status"] == "completed"


def test_without_an_upgrade(server: Running) -> None:
    assert server.http.get("/v1/realtime").status_code == 426
