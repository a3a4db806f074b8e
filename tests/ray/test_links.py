"""Links from workers elsewhere: who shows the token is heard, and nobody else."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from cosyserve.ray import links
from cosyserve.ray.links import KEEPALIVE, TOKEN_BYTES, Links, connect


def with_links(story: Callable[[Links], Awaitable[None]]) -> None:
    async def run() -> None:
        ours = Links()
        await ours.listen("127.0.0.1")
        address = ours.address
        try:
            await story(ours)
        finally:
            await ours.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)

    asyncio.run(run())


async def is_hung_up_on(link: socket.socket) -> bool:
    link.settimeout(5)
    return await asyncio.to_thread(link.recv, 1) == b""


def test_a_worker_is_told_from_another_by_its_token() -> None:
    async def story(ours: Links) -> None:
        with ours.expected() as (one, first), ours.expected() as (two, second):
            theirs = [await asyncio.to_thread(connect, ours.address, token) for token in (two, one)]
            for link, arrived in zip(theirs, (second, first), strict=True):
                reader, writer = await arrived
                writer.write(b"down")
                assert await asyncio.to_thread(link.recv, 4) == b"down"
                link.sendall(b"up")
                assert await reader.readexactly(2) == b"up"
        for link in theirs:  # the end of what was expected is the end of the link
            assert await is_hung_up_on(link)
            link.close()

    with_links(story)


def test_strangers_are_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "TOKEN_SECONDS", 0.2)

    async def story(ours: Links) -> None:
        with ours.expected() as (token, arrived):
            wrong = await asyncio.to_thread(connect, ours.address, bytes(TOKEN_BYTES))
            short = await asyncio.to_thread(connect, ours.address, token[:-1])  # then silence
            assert await is_hung_up_on(wrong)
            assert await is_hung_up_on(short)
            assert not arrived.done()
            right = await asyncio.to_thread(connect, ours.address, token)
            await arrived
            again = await asyncio.to_thread(connect, ours.address, token)
            assert await is_hung_up_on(again)  # a token is good for once
        for link in (wrong, short, right, again):
            link.close()

    with_links(story)


def test_who_is_not_expected_any_more_is_not_heard() -> None:
    async def story(ours: Links) -> None:
        with ours.expected() as (token, arrived):
            pass
        assert arrived.cancelled()
        late = await asyncio.to_thread(connect, ours.address, token)
        assert await is_hung_up_on(late)
        late.close()

    with_links(story)


def test_both_ends_notice_silence() -> None:
    async def story(ours: Links) -> None:
        with ours.expected() as (token, arrived):
            theirs = await asyncio.to_thread(connect, ours.address, token)
            _, writer = await arrived
            for end in (theirs, writer.get_extra_info("socket")):
                assert end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                for name, value in KEEPALIVE.items():
                    option = getattr(socket, name)
                    assert end.getsockopt(socket.IPPROTO_TCP, option) == value
            theirs.close()

    with_links(story)
