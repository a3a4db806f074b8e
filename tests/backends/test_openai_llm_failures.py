"""The client of an LLM server when the server fails: what is tried again, what is told."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from fastapi import Response

from cosyserve.backends.llm_server import LLMServer
from cosyserve.backends.openai_llm import OpenAILLM
from cosyserve.errors import CosyError, InputError, LLMServerError, OverloadError, WorkerError
from tests.backends import llm_server
from tests.backends.llm_server import dies_after, refuses, says
from tests.backends.test_openai_llm import REQUEST, listen, named, tokens


@pytest.mark.parametrize(
    "faults",
    [
        [refuses(503)],
        [refuses(429), refuses(500)],
        [dies_after()],
        [refuses(502), dies_after()],
        [says(finish="")],  # ends before it began
    ],
)
def test_what_fails_before_the_first_token_is_tried_again(
    server: llm_server.LLMServer, faults: list[Any]
) -> None:
    server.answers += faults
    assert tokens(listen(server.url)) == [1, 22, 333]
    assert len(server.bodies) == len(faults) + 1


@pytest.mark.parametrize(
    ("fault", "kind", "told"),
    [
        (refuses(429), OverloadError, "busy: not now"),
        (refuses(500), WorkerError, "status 500: not now"),
        (dies_after(), WorkerError, "is gone"),
    ],
)
def test_attempts_are_counted(
    server: llm_server.LLMServer, fault: Any, kind: type[CosyError], told: str
) -> None:
    server.answers += [fault] * 9
    with pytest.raises(kind, match=told):
        listen(server.url)
    assert len(server.bodies) == 3


@pytest.mark.parametrize(
    ("fault", "kind", "told"),
    [
        (refuses(400), LLMServerError, "refuses with status 400: not now"),
        (refuses(404), LLMServerError, "status 404"),
        (Response("{", 422), LLMServerError, "status 422: {"),
        (refuses(429, **{"Retry-After": "3600"}), OverloadError, "busy"),
        (dies_after("<|s_1|>"), WorkerError, "is gone"),
        (says("<|s_1|>", finish=""), WorkerError, "ended before the speech did"),
        (says("<|s_1|>", finish="abort"), LLMServerError, "gave up: finish_reason 'abort'"),
        (says("Hello, I am a large language model, pleased to meet you."), LLMServerError, "Hello"),
        (says("<|s_9999|>"), LLMServerError, "6561 speech tokens"),
        (says("<|s_1|><|s_"), LLMServerError, "within a token"),
        (says("raw:data: {oops\n\n"), LLMServerError, "no events of OpenAI's"),
        (says('raw:data: {"error": {"message": "out of memory"}}\n\n'), LLMServerError, "memory"),
        (
            says('raw:data: {"object": "error", "message": "aborted"}\n\n'),
            LLMServerError,
            "aborted",
        ),
        (says("raw:data: [1, 2]\n\n"), LLMServerError, "says: "),
        (says("raw:data: " + "x" * (2 << 20)), LLMServerError, "an event of more than"),
    ],
)
def test_other_failures_are_not_tried_again(
    server: llm_server.LLMServer, fault: Any, kind: type[CosyError], told: str
) -> None:
    server.answers.append(fault)
    with pytest.raises(kind, match=told):
        listen(server.url)
    assert len(server.bodies) == 1
    server.wait_until_idle()


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (says(60.0, "<|s_1|>"), "no first token within 0.2 s"),
        (says("raw:: ping\n\n", 0.1, "raw:: ping\n\n", 0.15, "<|s_1|>"), "no first token"),
        (says("<|s_1|>", 60.0), "no next token within 0.2 s"),
        (says("<|s_1|>", 0.15, " ", 0.15, " "), "no next token"),
    ],
)
def test_silence_has_an_end(server: llm_server.LLMServer, fault: Any, told: str) -> None:
    server.answers.append(fault)
    with pytest.raises(WorkerError, match=told):
        listen(server.url, first_seconds=0.2, between_seconds=0.2)
    server.wait_until_idle()


def test_a_slow_listener_is_not_the_servers_silence(server: llm_server.LLMServer) -> None:
    async def dawdle() -> list[int]:
        llm = OpenAILLM(LLMServer(server.url, "lm", between_seconds=0.2), named)
        found: list[int] = []
        async for piece in llm.generate(REQUEST):
            found += piece.ids
            await asyncio.sleep(0.3)
        await llm.close()
        return found

    server.answers.append(says("<|s_1|>", 0.01, "<|s_2|>"))
    assert asyncio.run(dawdle()) == [1, 2]


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    with pytest.raises(WorkerError, match=f"{url} is gone"):
        listen(url)


def test_impossible_servers_are_refused() -> None:
    with pytest.raises(InputError, match="no URL of an LLM server"):
        LLMServer("localhost:8000", "lm")
    with pytest.raises(InputError, match="time limits"):
        LLMServer("http://localhost:8000/v1", "lm", between_seconds=0)
