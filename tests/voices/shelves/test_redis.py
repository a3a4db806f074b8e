"""Redis itself: hosts that share it, its end and return, and what strangers put into it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyserve.errors import InputError, MissingVoiceError, StoreError, VoiceError
from cosyserve.voices import store
from cosyserve.voices.file import MAX_BYTES, to_bytes
from cosyserve.voices.shelves.redis import PREFIX
from cosyserve.voices.store import open_store
from tests.redis_server import RedisServer, redis_running
from tests.voices.test_file import PRESET, VOICE
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_running(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def server(running: RedisServer) -> RedisServer:
    redis.Redis.from_url(running.url).flushall()
    return running


def test_hosts_share_voices(server: RedisServer) -> None:
    one, other = open_store(server.url), open_store(server.url)
    one.put("ann", VOICE)
    assert other.names() == ["ann"]
    assert other.get("ann").consent == VOICE.consent
    one.put("ann", PRESET)
    assert other.get("ann").content_hash == PRESET.content_hash
    other.remove("ann")
    assert one.names() == []


def test_a_voice_that_one_host_removes_is_forgotten_by_all(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "IDLE_SECONDS", 0.2)
    one, other = open_store(server.url), open_store(server.url)
    one.put("ann", VOICE)
    one.get("ann")
    other.get("ann")
    assert len(one._read) == len(other._read) == 1
    one.remove("ann")
    assert len(one._read) == 0
    with pytest.raises(MissingVoiceError):
        other.get("ann")
    wait_until(lambda: not len(other._read))


def test_redis_goes_away_and_comes_back(tmp_path: Path) -> None:
    with redis_running(tmp_path) as server:
        store = open_store(server.url)
        store.put("ann", VOICE)
        redis.Redis.from_url(server.url).save()
        server.end()
        for use in (store.names, lambda: store.get("ann"), lambda: store.put("bea", VOICE)):
            with pytest.raises(StoreError, match="can't be used now"):
                use()
        server.start()
        assert store.get("ann").content_hash == VOICE.content_hash
        store.put("bea", VOICE)
        assert store.names() == ["ann", "bea"]


def test_what_strangers_left_there(server: RedisServer) -> None:
    client = redis.Redis.from_url(server.url)
    store = open_store(server.url)
    store.put("ann", VOICE)
    client.set(f"{PREFIX}junk", b"junk")
    client.set(f"{PREFIX}cut", to_bytes(VOICE)[:-3])
    client.set(f"{PREFIX}empty", b"")
    client.set(f"{PREFIX}a b", b"no name")
    client.set(PREFIX.encode() + b"\xff\xfe", b"no text")
    client.set(f"{PREFIX}default", to_bytes(VOICE))
    client.set("another:key", b"somebody else's")
    client.rpush(f"{PREFIX}list", "a")
    client.setrange(f"{PREFIX}huge", MAX_BYTES + 5, b"x")
    assert store.names() == ["ann", "cut", "empty", "huge", "junk"]
    for name in ("junk", "cut", "empty", "list", "huge"):
        with pytest.raises(VoiceError):
            store.get(name)
    assert store.get("ann").content_hash == VOICE.content_hash


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 4000))
def test_any_bytes_are_a_voice_or_an_error(running: RedisServer, noise: bytes, place: int) -> None:
    data = to_bytes(PRESET)
    place %= len(data)
    redis.Redis.from_url(running.url).set(
        f"{PREFIX}odd", data[:place] + noise + data[place + len(noise) :]
    )
    with contextlib.suppress(VoiceError):
        open_store(running.url).get("odd")


@pytest.mark.parametrize("url", ["redis://host:port", "redis://h:1/name:x?db=z"])
def test_a_url_that_is_none(url: str) -> None:
    with pytest.raises(InputError, match="not the URL of a Redis server"):
        open_store(url)


def test_a_wrong_address_is_told_when_it_is_used_without_its_password() -> None:
    with pytest.raises(StoreError) as raised:
        open_store("redis://user:secret@127.0.0.1:1/0").names()
    assert "secret" not in str(raised.value)
