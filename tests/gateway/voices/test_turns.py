"""Who is next, and who is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from cosyserve.errors import OverloadError
from cosyserve.gateway.voices.turns import Turns


class Crowd:
    """Clients that hold their turns until they are told to go on."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.order: list[str] = []
        self.inside = 0
        self.most_inside = 0
        self.go_on = asyncio.Event()

    async def ask(self, client: str) -> asyncio.Task[None]:
        task = asyncio.create_task(self._hold(client))
        await asyncio.sleep(0)
        return task

    async def _hold(self, client: str) -> None:
        async with self.turns.take(client):
            self.order.append(client)
            self.inside += 1
            self.most_inside = max(self.most_inside, self.inside)
            try:
                await self.go_on.wait()
                await asyncio.sleep(0)
            finally:
                self.inside -= 1


def with_crowd(
    at_once: int, waiting: int, per_client: int, story: Callable[[Crowd], Awaitable[None]]
) -> None:
    async def run() -> None:
        turns = Turns(at_once, waiting, per_client)
        crowd = Crowd(turns)
        async with asyncio.timeout(5):
            await story(crowd)
        assert turns._free == at_once
        assert not turns._waiting

    asyncio.run(run())


def test_clients_take_turns_whatever_each_of_them_asks() -> None:
    async def story(crowd: Crowd) -> None:
        tasks = [await crowd.ask(client) for client in "aaaaabbc"]
        crowd.go_on.set()
        await asyncio.gather(*tasks)
        assert "".join(crowd.order) == "aaabcaba"
        assert crowd.most_inside == 2

    with_crowd(2, 99, 99, story)


def test_too_many_are_refused_by_client_and_in_all() -> None:
    async def story(crowd: Crowd) -> None:
        tasks = [await crowd.ask(client) for client in "aaa"]
        with pytest.raises(OverloadError, match="2 of your recordings") as refused:
            await (await crowd.ask("a"))
        assert refused.value.retry_after > 0
        tasks.append(await crowd.ask("b"))
        with pytest.raises(OverloadError, match="3 recordings"):
            await (await crowd.ask("b"))
        crowd.go_on.set()
        await asyncio.gather(*tasks)
        assert "".join(crowd.order) == "aaba"

    with_crowd(1, 3, 2, story)


def test_whoever_leaves_makes_room_and_keeps_no_turn() -> None:
    async def story(crowd: Crowd) -> None:
        first, *others = [await crowd.ask(client) for client in "aabbc"]
        others[0].cancel()
        first.cancel()  # passes on, in the same moment as others leave
        others[1].cancel()
        await asyncio.wait([first, *others[:2]])
        assert "".join(crowd.order) == "ab"
        others[2].cancel()  # who has the turn now
        await asyncio.sleep(0)
        others[3].cancel()  # to whom it has just been passed on
        await asyncio.wait(others)
        assert crowd.inside == 0

    with_crowd(1, 9, 9, story)
