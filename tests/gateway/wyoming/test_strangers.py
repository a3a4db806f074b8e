"""Whatever strangers send to the Wyoming port, and how much of it."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from wyoming.audio import AudioChunk
from wyoming.client import AsyncTcpClient
from wyoming.tts import (
    Synthesize,
)

from tests.gateway.talking import talking
from tests.gateway.wyoming.asking import Door, hear, open_door
from tests.waiting import wait_until

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


def test_a_client_is_its_address(caplog: pytest.LogCaptureFixture) -> None:
    """Whichever way it asks."""
    caplog.set_level(logging.INFO, "cosyserve.gateway")

    async def ask(client: AsyncTcpClient) -> None:
        await client.write_event(Synthesize("Hello.").event())
        assert (await hear(client)).kinds[-1] == "audio-stop"
        await client.write_event(Synthesize("Hello.").event())
        assert (await hear(client)).error.code == "rate_limit_exceeded"

    with open_door(max_requests_per_minute=1) as door:
        door.talk(ask)
        assert door.server.say().status_code == 429
        wait_until(lambda: len(caplog.records) >= 3)
    lines = [json.loads(line) for line in caplog.messages]
    assert [line["method"] for line in lines] == ["WYOMING", "WYOMING", "POST"]
    assert {line["client"] for line in lines} == {"127.0.0.1"}


def test_connections_are_a_quarter_of_all(door: Door) -> None:
    async def crowd() -> None:
        async with (
            AsyncTcpClient("127.0.0.1", door.port),
            AsyncTcpClient("127.0.0.1", door.port),
        ):
            await asyncio.sleep(0.1)
            async with AsyncTcpClient("127.0.0.1", door.port) as third:
                assert (await hear(third)).error.code == "too_many_requests"
            with talking(door.server.url):  # others still find a place
                pass

    asyncio.run(crowd())


def test_connections_must_not_be_silent(impatient: Door) -> None:
    async def wait(client: AsyncTcpClient) -> None:
        assert (await hear(client)).error.code == "timeout"

    impatient.talk(wait)
