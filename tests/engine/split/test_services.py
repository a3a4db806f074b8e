"""An LM alone: when it rests, when it is full, what it refuses."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace

import pytest

from cosyserve.backends.protocols import LMRequest
from cosyserve.checkpoints.model import Model
from cosyserve.engine.split.lm_service import LMService
from cosyserve.engine.split.token2wav_service import Token2WavService
from cosyserve.errors import InputError, OverloadError
from tests.engine.split.listening import comes_to_rest


def test_the_lm_rests_when_its_only_listener_has_a_first_piece(
    parts_alone: tuple[LMService, Token2WavService],
) -> None:
    lm, _ = parts_alone
    paced = LMRequest((5, 6, 7), (), 200, 200, first_chunk=8, chunk=8)

    async def run() -> None:
        pieces = lm.generate(paced)
        await anext(pieces)
        (row,) = lm.queue.lm.rows
        await asyncio.sleep(0.2)
        assert len(row.tokens) == 8
        async for _ in lm.generate(replace(paced, seed=1, min_tokens=20, max_tokens=20)):
            pass
        assert len(row.tokens) > 8  # others' steps take it along
        assert sum([len(piece.ids) async for piece in pieces]) == 200 - 8
        await comes_to_rest(parts_alone)

    asyncio.run(run())


def test_a_full_lm_refuses_and_recovers(model: Model) -> None:
    lm = LMService(model.need_lm()[0], slots=1, max_waiting=2)

    async def ask() -> int:
        return len([piece async for piece in lm.generate(LMRequest((1,), (), 100, 100))])

    async def run() -> None:
        found = await asyncio.gather(*(ask() for _ in range(5)), return_exceptions=True)
        assert [type(item) for item in found] == [int] * 3 + [OverloadError] * 2
        assert await ask() == 100
        await lm.close()

    asyncio.run(run())


def test_what_the_lm_can_not_take_is_refused(model: Model) -> None:
    lm = LMService(model.need_lm()[0], slots=1, max_waiting=1)

    async def ask(request: LMRequest) -> None:
        async with aclosing(lm.generate(request)) as pieces:
            await anext(pieces)

    async def run() -> None:
        for request, complaint in (
            (LMRequest((10**6,), (), 0, 5), "text ids"),
            (LMRequest((1,), (-1,), 0, 5), "speech ids"),
            (LMRequest((1,), (), 0, 10**6), "tokens can follow"),
        ):
            with pytest.raises(InputError, match=complaint):
                await ask(request)
        await ask(LMRequest((1,), (), 0, 5))
        await lm.close()

    asyncio.run(run())


def test_pieces_come_as_they_are_wanted(model: Model) -> None:
    lm = LMService(model.need_lm()[0], slots=1, max_waiting=1)

    async def run() -> list[int]:
        request = LMRequest((1, 2, 3), (), 40, 40, first_chunk=13, chunk=10)
        sizes = [len(piece.ids) async for piece in lm.generate(request)]
        await lm.close()
        return sizes

    assert asyncio.run(run()) == [13, 10, 10, 7]
