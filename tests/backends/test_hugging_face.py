"""The speech LM in `transformers`: our logits, our draws, batches of whoever comes together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import pytest
import torch

from cosyserve.backends.hugging_face import HuggingFaceLM
from cosyserve.backends.protocols import LMBackend, LMRequest
from cosyserve.checkpoints.load import load_folder
from cosyserve.contracts import Sampling
from cosyserve.engine.split.lm_backends import open_lm
from cosyserve.engine.split.silences import ShortSilences
from cosyserve.models.lm.lm import SpeechLM

TEXT, SPEECH = (5, 77, 300, 12, 9), (11, 222, 3333)
NEARLY_GREEDY = Sampling(top_p=0.01, top_k=1)


@pytest.fixture(scope="module", params=["hugging_face_lm_folder", "hugging_face_lm3_folder"])
def folder(request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def theirs(folder: Path) -> HuggingFaceLM:
    lm = open_lm("hf", folder, device="cpu", dtype="float32", slots=4)
    lm = lm.lm if isinstance(lm, ShortSilences) else lm
    assert isinstance(lm, HuggingFaceLM)
    return lm


@pytest.fixture(scope="module")
def ours(folder: Path) -> SpeechLM:
    return load_folder(folder, dtype=torch.float32).need_lm()[0]


async def drawn(lm: LMBackend, requests: Sequence[LMRequest]) -> list[tuple[list[int], str | None]]:
    async def one(request: LMRequest) -> tuple[list[int], str | None]:
        pieces = [piece async for piece in lm.generate(request)]
        return [token for piece in pieces for token in piece.ids], pieces[-1].finish

    return await asyncio.gather(*map(one, requests))


def test_the_logits_are_ours_however_long_a_neighbour_is(
    theirs: HuggingFaceLM, ours: SpeechLM
) -> None:
    requests = [LMRequest(TEXT[:n], SPEECH[:m], 0, 9) for n, m in ((5, 3), (1, 0), (3, 1))]
    forced = [[4, 5, 6, 7], [1000, 2000, 3000, 4000], [6560, 0, 1, 2]]
    prompts = [theirs.vocabulary.prompt(request) for request in requests]
    assert prompts[0][0] == ours.config.sos
    batch, found = theirs.begin(requests), []
    for step in range(5):
        found.append(theirs.logits(batch))
        if step < 4:
            fed = [theirs.vocabulary.text + row[step] for row in forced]
            batch.feed(fed, keep=range(3))
    for number, prompt in enumerate(prompts):
        ids = torch.tensor([prompt + [theirs.vocabulary.text + token for token in forced[number]]])
        with torch.inference_mode():
            expected = ours.logits(ours(ids))[0, len(prompt) - 1 :]
        actual = torch.stack([logits[number] for logits in found])
        torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("sampling", [None, NEARLY_GREEDY, Sampling(0.9, 40, window=20)])
def test_the_draws_are_ours(theirs: HuggingFaceLM, folder: Path, sampling: Sampling | None) -> None:
    requests = [
        LMRequest(TEXT[:3], SPEECH, 4, 60, seed=1, sampling=sampling),
        LMRequest(TEXT, (), 30, 30, seed=2, sampling=sampling),
        LMRequest(TEXT, SPEECH[:1], 0, 45, seed=-3, sampling=sampling),
    ]

    async def both() -> None:
        ours = open_lm("ours", folder, device="cpu", dtype="float32")
        expected = await drawn(ours, requests)
        await ours.close()
        assert await drawn(theirs, requests) == expected
        assert len(expected[1][0]) == 30

    asyncio.run(both())


def test_who_comes_together_shares_passes(
    theirs: HuggingFaceLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[int] = []
    logits = HuggingFaceLM.logits
    monkeypatch.setattr(
        HuggingFaceLM,
        "logits",
        lambda lm, batch: passes.append(len(batch.ids)) or logits(lm, batch),  # type: ignore[func-returns-value]
    )
    lengths = (10, 10, 4, 10, 10)
    requests = [LMRequest(TEXT, (), n, n, seed=seed) for seed, n in enumerate(lengths)]
    found = asyncio.run(drawn(theirs, requests))
    assert [len(tokens) for tokens, _ in found] == list(lengths)
    assert passes == [4] * 4 + [3] * 6 + [1] * 10  # four slots; who is done is not computed


def test_whoever_leaves_is_not_computed(theirs: HuggingFaceLM) -> None:
    async def leave() -> None:
        async with aclosing(theirs.generate(LMRequest(TEXT, (), 4000, 4000))) as pieces:
            await anext(pieces)
        assert (await drawn(theirs, [LMRequest(TEXT, (), 3, 3)]))[0][1] == "length"
        assert not theirs._waiting
        await theirs.close()

    asyncio.run(leave())


def test_a_failure_is_told_to_all_of_its_batch(
    theirs: HuggingFaceLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    async def ask() -> None:
        with monkeypatch.context() as broken:
            broken.setattr(HuggingFaceLM, "logits", fail)
            with pytest.raises(RuntimeError, match="out of memory"):
                await drawn(theirs, [LMRequest(TEXT, (), 3, 3)] * 2)
        assert (await drawn(theirs, [LMRequest(TEXT, (), 3, 3)]))[0][1] == "length"

    asyncio.run(ask())
