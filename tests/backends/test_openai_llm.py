"""The client against a real LLM server: what is asked, and what is heard."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from cosyserve.backends.llm_server import LLMServer
from cosyserve.backends.openai_llm import OpenAILLM
from cosyserve.backends.protocols import LMRequest, SpeechTokens
from cosyserve.choices import LLMSampling
from cosyserve.contracts import Sampling
from cosyserve.errors import InputError
from tests.backends import llm_server
from tests.backends.llm_server import SPOKEN, never_ends, says

REQUEST = LMRequest((5, 6), (7, 8), min_tokens=2, max_tokens=40, seed=3, sampling=Sampling(0.7, 11))


def named(ids: Sequence[int]) -> str:
    return "".join(f"[{number}]" for number in ids)


def listen(url: str, request: LMRequest = REQUEST, **options: Any) -> list[SpeechTokens]:
    async def all_of_it() -> list[SpeechTokens]:
        llm = OpenAILLM(LLMServer(url, "lm", **options), named)
        try:
            return [piece async for piece in llm.generate(request)]
        finally:
            await llm.close()

    return asyncio.run(all_of_it())


def tokens(pieces: list[SpeechTokens]) -> list[int]:
    assert [piece.finish for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
    return [token for piece in pieces for token in piece.ids]


@pytest.mark.parametrize("prompt", ["ids", "text", "chat"])
def test_tokens_come_with_a_finish(server: llm_server.LLMServer, prompt: str) -> None:
    pieces = listen(server.url, prompt=prompt)
    assert tokens(pieces) == [1, 22, 333]
    assert pieces[-1].finish == "stop"


def test_what_is_asked_of_completions(server: llm_server.LLMServer) -> None:
    listen(server.url)
    assert server.bodies == [
        {
            "model": "lm",
            "stream": True,
            "prompt": [158_227, 5, 6, 158_228, 151_670, 151_671],
            "max_tokens": 40,
            "min_tokens": 2,
            "stop": ["<|eos1|>", "<|eos2|>", "<|eos3|>", "<|eos|>"],
            "seed": 3,
            "temperature": 1.0,
            "top_p": 0.7,
            "top_k": 11,
            "repetition_penalty": 1.1,
            "skip_special_tokens": False,
        }
    ]


def test_prompts_as_text(server: llm_server.LLMServer) -> None:
    listen(server.url, prompt="text")
    listen(server.url, prompt="chat")
    listen(server.url, LMRequest((5,), (), 2, 40), prompt="chat")
    text, chat, plain = server.bodies
    assert text["prompt"] == "<|sos|>[5][6]<|task_id|><|s_7|><|s_8|>"
    assert chat["messages"] == [
        {"role": "user", "content": "[5][6]"},
        {"role": "assistant", "content": "<|s_7|><|s_8|>"},
    ]
    assert plain["messages"] == [{"role": "user", "content": "[5]"}]


def test_a_strict_server_is_spared_what_it_does_not_know(server: llm_server.LLMServer) -> None:
    listen(server.url, extensions=False)
    (body,) = server.bodies
    assert body.keys() == {
        *("model", "stream", "prompt", "max_tokens", "stop", "seed", "temperature", "top_p")
    }


def test_the_servers_sampling_is_for_requests_without_their_own(
    server: llm_server.LLMServer,
) -> None:
    plain = LMRequest((5,), (), min_tokens=30, max_tokens=400)
    sampling = LLMSampling(0.6, 0.9, 33, 1.3, max_tokens=20)
    listen(server.url, plain, sampling=sampling)
    own_sampling = Sampling(0.7, 11, temperature=1.2)
    listen(server.url, replace(plain, sampling=own_sampling), sampling=sampling)
    theirs, own = server.bodies
    assert (theirs["temperature"], theirs["repetition_penalty"]) == (0.6, 1.3)
    assert (theirs["top_p"], theirs["top_k"]) == (0.9, 33)
    assert (own["top_p"], own["top_k"], own["temperature"]) == (0.7, 11, 1.2)
    assert (own["min_tokens"], own["max_tokens"]) == (20, 20)


@pytest.mark.parametrize(
    "nonsense",
    [{"temperature": 0}, {"top_p": 0}, {"top_k": 0}, {"repetition_penalty": 0}, {"max_tokens": 0}],
)
def test_sampling_that_makes_no_sense(nonsense: dict[str, float]) -> None:
    with pytest.raises(InputError):
        LLMSampling(**nonsense)


@pytest.mark.parametrize("seed", [-1, 1 << 63, (1 << 64) + 5])
def test_any_seed_fits(server: llm_server.LLMServer, seed: int) -> None:
    listen(server.url, LMRequest((5,), (), 2, 40, seed))
    assert 0 <= server.bodies[0]["seed"] < 1 << 63


@pytest.mark.parametrize("prompt", ["ids", "chat"])
def test_tokens_cut_into_letters(server: llm_server.LLMServer, prompt: str) -> None:
    server.answers.append(says(*SPOKEN))
    assert tokens(listen(server.url, prompt=prompt)) == [1, 22, 333]


def test_an_end_in_the_text_ends(server: llm_server.LLMServer) -> None:
    server.answers.append(says("<|s_1|>", "<|eos1|>", "<|s_2|>", 60.0))
    begun = time.monotonic()
    pieces = listen(server.url)
    assert (tokens(pieces), pieces[-1].finish) == ([1], "stop")
    assert time.monotonic() - begun < 30  # the rest is not waited for


def test_the_servers_length_limit_is_told(server: llm_server.LLMServer) -> None:
    server.answers.append(says("<|s_1|>", finish="length"))
    assert listen(server.url)[-1] == SpeechTokens((), "length")


def test_a_server_that_never_ends_is_left(server: llm_server.LLMServer) -> None:
    server.answers.append(never_ends)
    pieces = listen(server.url)
    assert (len(tokens(pieces)), pieces[-1].finish) == (REQUEST.max_tokens, "length")
    server.wait_until_idle()


def test_closing_cancels(server: llm_server.LLMServer) -> None:
    server.answers.append(never_ends)

    async def leave_early() -> None:
        llm = OpenAILLM(LLMServer(server.url, "lm"), named)
        async with contextlib.aclosing(llm.generate(REQUEST)) as pieces:
            await anext(pieces)
            assert server.inside == 1
        await asyncio.to_thread(server.wait_until_idle)
        await llm.close()

    asyncio.run(leave_early())


def test_figures_of_use_and_comments_are_skipped(server: llm_server.LLMServer) -> None:
    usage = json.dumps({"choices": [], "usage": {"total_tokens": 3}})
    server.answers.append(says("raw:: ping\n\n", "<|s_1|>", f"raw:data: {usage}\n\n"))
    assert tokens(listen(server.url)) == [1]


def test_the_key_is_sent_and_never_shown(server: llm_server.LLMServer) -> None:
    listen(server.url, api_key="secret")
    assert server.headers[-1]["authorization"] == "Bearer secret"
    assert "secret" not in repr(LLMServer(server.url, "lm", api_key="secret"))
