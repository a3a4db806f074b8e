"""Allowances for a minute: what is left of them, who is refused, and until when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.gateway import rates as module
from cosyserve.gateway.errors import Refusal
from cosyserve.gateway.rates import Rates, duration
from cosyserve.gateway.telemetry.record import Record
from cosyserve.settings import Settings
from tests.gateway.serving import serving
from tests.gateway.talking import talking


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def record(client: str = "ann") -> Record:
    return Record("r", "POST", "/", client=client)


def refused(rates: Rates, asked: Record, characters: int) -> Refusal:
    with pytest.raises(Refusal) as refusal:
        rates.take(asked, characters)
    return refusal.value


def test_an_allowance_is_used_up_and_fills_up_again(clock: Clock) -> None:
    rates = Rates(requests=3, characters=600)
    for left in (2, 1, 0):
        rates.take(asked := record(), 100)
        assert asked.headers["x-ratelimit-remaining-requests"] == str(left)
    assert asked.headers == {
        "x-ratelimit-limit-requests": "3",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "1m0s",
        "x-ratelimit-limit-characters": "600",
        "x-ratelimit-remaining-characters": "300",
        "x-ratelimit-reset-characters": "30s",
    }
    clock.now += 12.5
    refusal = refused(rates, asked := record(), 1)
    assert (refusal.status_code, refusal.code) == (429, "rate_limit_exceeded")
    assert refusal.headers == {"Retry-After": "8"}
    assert "3 requests a minute: try again in 7.5s" in refusal.detail
    assert asked.headers["x-ratelimit-remaining-characters"] == "425"  # it took nothing
    rates.take(record("bob"), 1)
    clock.now += 7.5
    rates.take(record(), 425)


def test_characters_are_counted(clock: Clock) -> None:
    rates = Rates(characters=100)
    assert refused(rates, record(), 101).status_code == 400  # it would be refused for ever
    rates.take(record(), 90)
    assert refused(rates, record(), 20).headers == {"Retry-After": "6"}
    rates.take(record(), 10)


def test_a_text_in_pieces_is_counted_when_it_has_come(clock: Clock) -> None:
    rates = Rates(characters=100)
    rates.take(record(), 0)
    rates.add(record(), 250)
    assert refused(rates, record(), 0).headers == {"Retry-After": "91"}
    clock.now += 91
    rates.take(record(), 0)


def test_without_limits_nothing_is_kept_or_told() -> None:
    rates, asked = Rates(), record()
    for _ in range(1000):
        rates.take(asked, 10_000)
    assert asked.headers == {}
    assert rates._full_at == {}


def test_clients_that_are_gone_are_forgotten(clock: Clock) -> None:
    rates = Rates(requests=60)
    for number in range(10_000):
        clock.now += 0.1
        rates.take(record(f"client {number}"), 1)
        assert len(rates._full_at) <= module.PRUNE_FROM + 1


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(1, 50)), max_size=60))
def test_no_minute_has_more_than_two_allowances(asked: list[tuple[float, int]]) -> None:
    """A full one at its begin, and what fills up meanwhile."""
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "time", clock)
        rates, taken = Rates(characters=100), []
        for pause, characters in asked:
            clock.now += pause
            try:
                rates.take(record(), characters)
            except Refusal as refusal:
                clock.now += float((refusal.headers or {})["Retry-After"])
                rates.take(record(), characters)  # as it was told
            taken.append((clock.now, characters))
    for begin, _ in taken:
        assert sum(count for at, count in taken if begin <= at < begin + 60) <= 200


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(0, "0ms"), (0.09, "90ms"), (1.5, "1.5s"), (60, "1m0s"), (89.999, "1m29.999s")],
)
def test_durations_are_written_as_openai_does(seconds: float, written: str) -> None:
    assert duration(seconds) == written


def test_over_http_and_on_a_websocket() -> None:
    settings = Settings(max_requests_per_minute=3, max_characters_per_minute=1000)
    with serving(settings=settings, keys=["one", "two"]) as server:
        mine, other = ({"Authorization": f"Bearer {key}"} for key in ("one", "two"))
        server.http.headers.update(mine)
        answer = server.say()
        assert answer.headers["x-ratelimit-remaining-requests"] == "2"
        assert answer.headers["x-ratelimit-remaining-characters"] == "994"
        assert "x-ratelimit-limit-requests" not in server.http.get("/v1/models").headers

        with talking(server.url, additional_headers=mine) as talk:
            assert talk.say("Hello. ").last["type"] == "done"
        batch = server.http.post("/v1/audio/speech/batch", json={"items": [{"input": "a"}] * 2})
        results = batch.json()["results"]
        assert sorted(result["status"] for result in results) == ["error", "success"]
        assert batch.headers["x-ratelimit-remaining-requests"] == "0"
        assert batch.headers["x-ratelimit-limit-characters"] == "1000"

        refusal = server.say()
        assert refusal.status_code == 429
        assert refusal.headers["x-ratelimit-remaining-requests"] == "0"
        assert 1 <= int(refusal.headers["retry-after"]) <= 20
        with talking(server.url, additional_headers=mine) as talk:
            last = talk.say("Hello.").last
            assert last["error"]["code"] == "rate_limit_exceeded"
            assert 1 <= last["retry_after"] <= 20
        server.http.headers.update(other)
        assert server.say().status_code == 200
        assert server.engine.sessions == 4
        assert 'reason="rate_limit_exceeded"' in server.http.get("/metrics").text
