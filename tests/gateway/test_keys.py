"""Keys: who may ask, and what they are told."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from tests.gateway.serving import SPEECH, Running, serving

KEYS = ("first-key", "zweiter-Schlüssel")


@pytest.fixture(scope="module")
def guarded() -> Iterator[Running]:
    with serving(keys=KEYS) as running:
        yield running


@pytest.mark.parametrize("path", ["/v1/models", "/v1/audio/voices", "/metrics", "/nowhere"])
@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer first",
        "Bearer first-key2",
        "Basic first-key",
        "first-key",
    ],
)
def test_without_a_key_there_is_nothing(
    guarded: Running, path: str, authorization: str | None
) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    answer = guarded.http.get(path, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    error = answer.json()["error"]
    assert (error["code"], error["type"]) == ("invalid_api_key", "invalid_request_error")
    assert answer.headers["x-request-id"]


@pytest.mark.parametrize("key", KEYS)
def test_each_key_opens(guarded: Running, key: str) -> None:
    headers = {"Authorization": f"Bearer {key}".encode()}
    for path in ("/v1/models", "/metrics"):
        assert guarded.http.get(path, headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["/health", "/ready", "/docs", "/openapi.json"])
def test_some_pages_are_open(guarded: Running, path: str) -> None:
    assert guarded.http.get(path).status_code == 200


def test_the_official_client(guarded: Running) -> None:
    def client(key: str) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{guarded.url}/v1", api_key=key, max_retries=0)

    fields = {"model": "tts-1", "voice": "alloy", "input": "Hello."}
    assert client(KEYS[0]).audio.speech.create(**fields).content
    before = guarded.engine.sessions
    with pytest.raises(openai.AuthenticationError):
        client("wrong").audio.speech.create(**fields)
    assert guarded.engine.sessions == before


def test_a_body_is_not_read_for_strangers(guarded: Running) -> None:
    answer = guarded.http.post(SPEECH, content=b"a" * 1_000_000)
    assert answer.status_code == 401
    assert answer.headers["connection"] == "close"


def test_without_keys_anybody_may_ask(server: Running) -> None:
    headers = {"Authorization": "Bearer whatever"}
    assert server.http.get("/v1/models", headers=headers).status_code == 200
