"""Several texts in one request, and how past streams ended."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import pytest

from cosyserve.audio import AudioFormat, encode
from cosyserve.errors import OverloadError, WorkerError
from cosyserve.gateway.speech import outcomes
from cosyserve.gateway.speech.framing import Usage
from cosyserve.gateway.speech.outcomes import Outcome, Outcomes
from cosyserve.settings import Settings
from tests.gateway.serving import SPEECH, Running, serving
from tests.gateway.sine_engine import SineEngine

BATCH = f"{SPEECH}/batch"
JSON = {"Content-Type": "application/json"}


def ask(server: Running, *items: Any, **shared: Any) -> httpx.Response:
    return server.http.post(BATCH, json={"items": items, "response_format": "pcm", **shared})


def test_items_are_spoken_in_order_with_shared_fields(server: Running) -> None:
    items = [{"input": f"Number {n}."} for n in range(12)]
    items[3] |= {"response_format": "wav", "speaker": "default", "speed": 2, "temperature": 0.5}
    answer = ask(server, *items, voice="alloy", speed=1.5, temperature=0.9).json()
    assert (answer["total"], answer["succeeded"], answer["failed"]) == (12, 12, 0)
    assert [result["index"] for result in answer["results"]] == list(range(12))
    for result in answer["results"]:
        audio_format = AudioFormat.WAV if result["index"] == 3 else AudioFormat.PCM
        data = base64.b64decode(result["audio_data"])
        assert data[-4096:] == encode(server.engine.samples, audio_format)[-4096:]
        assert (result["status"], result["finish_reason"]) == ("success", "stop")
        assert result["format"] == audio_format
        assert result["usage"]["output_tokens"] == 40
        assert "error" not in result
    assert {request.text for request in server.engine.requests} == {i["input"] for i in items}
    asked = {(r.speed, r.sampling and r.sampling.temperature) for r in server.engine.requests}
    assert asked == {(1.5, 0.9), (2.0, 0.5)}
    assert 1 < server.engine.most_open <= 8


def test_an_items_error_is_its_own(server: Running) -> None:
    words = {"input": "Hello.", "word_timestamps": True}
    half = {"input": "Hello.", "lexicon": {"a": "\ud800"}}
    nobody = {"input": "Hello.", "voice": "nobody"}
    items = [{"input": "Hello."}, nobody, {"input": ""}, {}, words, half]
    body = json.dumps({"items": items, "response_format": "pcm"})  # half a pair as an escape
    answer = server.http.post(BATCH, content=body, headers=JSON).json()
    assert (answer["succeeded"], answer["failed"]) == (1, 5)
    codes = [result.get("error", {}).get("code") for result in answer["results"]]
    assert codes == [None, "voice_not_found", *4 * ["invalid_value"]]
    assert all("audio_data" not in result for result in answer["results"][1:])


def test_a_batch_waits_where_a_single_request_would_be_refused(server: Running) -> None:
    class Full(SineEngine):
        refused = 0

        async def open(self, request: Any) -> Any:
            if self.refused < 3:
                self.refused += 1
                raise OverloadError("full", 0.01)
            async for chunk in super().open(request):
                yield chunk

    with serving(Full()) as full:
        assert ask(full, {"input": "Hello."}, {"input": "Hello."}).json()["succeeded"] == 2
    server.behave(error=WorkerError("died"))
    (result,) = ask(server, {"input": "Hello."}).json()["results"]
    assert result["error"]["code"] == "engine_unavailable"


def test_an_item_that_was_heard_is_not_begun_again(server: Running) -> None:
    server.behave(error=OverloadError("full", 0.01), error_at=2)
    (result,) = ask(server, {"input": "Hello."}).json()["results"]
    assert result["error"]["code"] == "overloaded"
    assert server.engine.sessions == 1


def test_the_audio_of_all_items_is_limited() -> None:
    with serving(settings=Settings(max_body_bytes=26_000, max_requests=1)) as server:
        assert 26_000 < 2 * len(server.engine.samples) < 4 * 26_000
        small = {"input": "Hello.", "response_format": "opus"}
        answer = ask(server, {"input": "Hello."}, {"input": "Hello."}, small).json()
        assert [result["status"] for result in answer["results"]] == ["success", "error", "success"]
        error = answer["results"][1]["error"]
        assert error["code"] == "answer_too_large"
        assert "104000 bytes" in error["message"]


def test_a_batch_takes_no_more_places_than_there_are() -> None:
    with serving(settings=Settings(max_requests=2)) as server:
        answer = ask(server, *[{"input": "Hello."}] * 6)
        assert answer.json()["succeeded"] == 6
        assert server.engine.most_open <= 2
        server.wait_until_idle()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "invalid_value"),
        ({"items": []}, "invalid_value"),
        ({"items": ["Hello."]}, "invalid_value"),
        ({"items": [{"input": "a"}] * 33}, "invalid_value"),
        ({"items": [{"input": "a" * 4000}] * 5}, "input_too_long"),
        ({"items": [{"input": None}] * 5, "input": "a" * 4000}, "input_too_long"),
    ],
)
def test_batches_that_are_none(server: Running, body: dict[str, Any], code: str) -> None:
    answer = server.http.post(BATCH, json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
    assert answer.json()["error"]["param"] == "items"


def test_how_a_stream_ended_is_for_its_own_key() -> None:
    with serving(keys=["one", "two"]) as server:
        mine, other = ({"authorization": f"Bearer {key}"} for key in ("one", "two"))
        body = {"input": "Hello.", "response_format": "pcm"}
        named = mine | {"x-request-id": "call-1"}
        assert server.http.post(SPEECH, json=body, headers=named).status_code == 200
        usage = {"input_tokens": 7, "output_tokens": 40, "total_tokens": 47}
        shown = server.http.get(f"{SPEECH}/call-1", headers=mine)
        assert shown.json() == {"request_id": "call-1", "finish_reason": "stop", "usage": usage}
        assert server.http.get(f"{SPEECH}/call-1", headers=other).status_code == 404
        assert server.http.get(f"{SPEECH}/call-1").status_code == 401


def test_streams_that_failed_or_were_left(server: Running) -> None:
    server.behave(error=WorkerError("died"), error_at=2)
    name = {"x-request-id": "failed"}
    with pytest.raises(httpx.RemoteProtocolError):
        server.http.post(SPEECH, json={"input": "Hello."}, headers=name)
    server.behave(held=True)
    body = {"input": "Hello.", "response_format": "pcm"}
    with server.http.stream("POST", SPEECH, json=body, headers={"x-request-id": "left"}) as answer:
        next(answer.iter_raw())
    server.wait_until_idle()
    for name_, reason in (("failed", "error"), ("left", "cancelled")):
        assert server.http.get(f"{SPEECH}/{name_}").json()["finish_reason"] == reason
    server.behave(error=WorkerError("died"))  # before any audio: there was no stream
    assert server.say().status_code == 503


def test_few_outcomes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "KEPT", 2)
    kept, usage = Outcomes(), Usage(input_tokens=1, output_tokens=1, total_tokens=2)
    for name in ("a", "b", "a", "c"):
        kept.keep(None, Outcome(request_id=name, finish_reason="stop", usage=usage))
    assert kept.get(None, "a")
    assert kept.get(None, "c")
    with pytest.raises(Exception, match="'b'"):
        kept.get(None, "b")
