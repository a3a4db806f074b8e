"""The speech LM as the model tensorrt_llm, asked directly."""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest

from cosyserve.backends.protocols import LMRequest
from cosyserve.checkpoints.model import Model
from cosyserve.contracts import Sampling
from cosyserve.engine.compute.generation import Generation
from cosyserve.engine.compute.lm_runner import LMRunner
from cosyserve.errors import CosyError, InputError
from cosyserve.triton.client import TritonClient
from cosyserve.triton.tensors import Array
from cosyserve.triton.vocabulary import COSYVOICE2 as VOCABULARY
from tests.triton.asking import LIMITS, asking, comes_to_rest, one
from tests.triton.server import Served


def question(**changes: Array) -> dict[str, Array]:
    asked = LMRequest((5, 6, 7), (9, 10), 20, 60)
    ids = np.array([VOCABULARY.lm.prompt(asked)], np.int32)
    return {
        "input_ids": ids,
        "input_lengths": one(ids.shape[1], np.int32),
        "request_output_len": one(60, np.int32),
        "min_length": one(20, np.int32),
        "end_id": one(VOCABULARY.lm.end, np.int32),
        "random_seed": one(3, np.uint64),
        "streaming": one(True, np.bool_),
    } | changes


async def answered(client: TritonClient, given: dict[str, Array]) -> list[dict[str, Array]]:
    return [answer async for answer in client.stream("tensorrt_llm", given, **LIMITS)]


def drawn(model: Model, seed: int, sampling: Sampling | None = None) -> list[int]:
    lm, _ = model.need_lm()
    request = LMRequest((5, 6, 7), (9, 10), 20, 60, seed, sampling)
    row = Generation.from_request(lm.config, request, model.config.sampling)
    runner = LMRunner(lm, 1, 128)
    runner.join(row)
    while row.finish is None:
        runner.step()
    return VOCABULARY.ids(row.tokens)


def test_the_lm_streams_the_engines_tokens(served: Served, model: Model) -> None:
    for seed in (3, 4):
        given = question(random_seed=one(seed, np.uint64))
        found = asking(served, lambda c, given=given: answered(c, given))
        ids = [token for answer in found for token in answer["output_ids"][0, 0].tolist()]
        assert ids == drawn(model, seed)
        lengths = [int(answer["sequence_length"][0, 0]) for answer in found]
        assert lengths == [answer["output_ids"].shape[2] for answer in found]


def test_the_lm_answers_at_once_where_that_is_wanted(served: Served, model: Model) -> None:
    given = question(streaming=one(False, np.bool_), return_log_probs=one(True, np.bool_))
    (found,) = asking(served, lambda c: answered(c, given))
    assert found["output_ids"][0, 0].tolist() == drawn(model, 3)
    log_probs = found["output_log_probs"][0, 0]
    assert len(log_probs) == len(drawn(model, 3))
    assert (log_probs < 0).all()
    assert found["cum_log_probs"][0, 0] == pytest.approx(log_probs.sum(), rel=1e-4)


def test_the_lm_answers_what_the_originals_cosyvoice2_asks(served: Served, model: Model) -> None:
    given = question(
        pad_id=one(VOCABULARY.lm.end, np.int32),
        runtime_top_p=one(0.8, np.float32),
        runtime_top_k=one(25, np.int32),
        temperature=one(0.7, np.float32),
        repetition_penalty=one(1.1, np.float32),
    )
    found = asking(served, lambda c: answered(c, given))
    ids = [token for answer in found for token in answer["output_ids"][0, 0].tolist()]
    assert ids == drawn(model, 3, Sampling(temperature=0.7))
    assert ids != drawn(model, 3)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"input_ids": np.array([[1, 2, 3]], np.int32)}, "input_ids must be"),
        ({"input_ids": np.zeros((1, 0), np.int32)}, "input_ids"),
        ({"request_output_len": one(0, np.int32)}, "tokens can follow"),
        ({"request_output_len": one(10**6, np.int32)}, "tokens can follow"),
        ({"runtime_top_p": one(0.0, np.float32)}, "top_p"),
        ({"runtime_top_k": one(0, np.int32)}, "top_k"),
        ({"temperature": one(0.0, np.float32)}, "temperature must be 0.01..2"),
        ({"repetition_penalty": one(np.nan, np.float32)}, "repetition_penalty must be more"),
        ({"beam_width": one(2, np.int32)}, "beam_width must be 1"),
        ({"random_seed": one(3, np.int32)}, "random_seed"),
    ],
)
def test_a_prompt_that_is_none_is_refused(
    served: Served, changes: dict[str, Array], complaint: str
) -> None:
    with pytest.raises(InputError if complaint != "random_seed" else CosyError, match=complaint):
        asking(served, lambda c: answered(c, question(**changes)))


def test_the_lm_pauses_after_its_first_chunk_until_it_is_resumed(
    served: Served, model: Model
) -> None:
    chunks = {"first_chunk": 8, "chunk": 8, "pause_id": 5}

    async def listen(client: TritonClient, seconds: float) -> tuple[list[int], float]:
        """The ids, and how long after the first piece the second one came."""
        ids, times = [], []
        answers = client.stream("tensorrt_llm", question(), parameters=chunks, **LIMITS)
        async for answer in answers:
            ids += answer["output_ids"][0, 0].tolist()
            times.append(time.monotonic())
            if len(times) == 1 and seconds:
                await asyncio.sleep(seconds)
                wake = client.stream("tensorrt_llm", question(), parameters={"resume": 5}, **LIMITS)
                assert [answer async for answer in wake] == []
        return ids, times[1] - times[0]

    resumed = []
    for _ in range(3):  # a busy machine may take its time
        ids, pause = asking(served, lambda c: listen(c, 0.2))
        assert ids == drawn(model, 3)
        resumed.append(pause)
    assert 0.2 < min(resumed) < 0.9
    ids, alone = asking(served, lambda c: listen(c, 0))  # nobody says so: it goes on by itself
    assert ids == drawn(model, 3)
    assert alone > 0.9


def test_leaving_the_lm_frees_its_row(served: Served) -> None:
    async def leave(client: TritonClient) -> None:
        given = question(request_output_len=one(3_000, np.int32), min_length=one(3_000, np.int32))
        listening = asyncio.create_task(answered(client, given))
        await asyncio.sleep(0.3)
        assert served.held()["cosyserve_lm_rows", "tensorrt_llm"] == 1
        listening.cancel()
        await asyncio.wait([listening])

    asking(served, leave)
    comes_to_rest(served)
