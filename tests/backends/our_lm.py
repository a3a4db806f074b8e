"""Our own speech LM behind an LLM server, as vLLM would serve it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

from cosyserve.backends.protocols import LMRequest
from cosyserve.backends.token_text import TokenReader, to_text
from cosyserve.checkpoints.model import Model
from cosyserve.contracts import Sampling
from cosyserve.engine.split.lm_service import LMService
from cosyserve.triton.vocabulary import vocabulary_of
from tests.backends.llm_server import LLMServer, serving

PROMPT = re.compile(r"<\|sos\|>(.*)<\|task_id\|>(.*)", re.DOTALL)


@contextmanager
def serving_lm(model: Model) -> Iterator[LLMServer]:
    lm, tokenizer = model.need_lm()
    alone, vocabulary = LMService(lm), vocabulary_of(model.config.family).lm

    def prompt(body: dict[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """As a server tokenises it, chat template included."""
        given = body.get("prompt")
        if isinstance(given, list):
            return vocabulary.parse(given)
        if "messages" in body:
            user, *assistant = (message["content"] for message in body["messages"])
            given = f"<|sos|>{user}<|task_id|>{''.join(assistant)}"
        parts = PROMPT.fullmatch(given or "")
        assert parts
        speech = TokenReader(vocabulary.speech).read(parts[2])
        return tuple(tokenizer.encode(parts[1])), tuple(speech)

    async def speak(body: dict[str, Any]) -> AsyncIterator[str]:
        sampling = Sampling(body["top_p"], body["top_k"], temperature=body["temperature"])
        request = LMRequest(
            *prompt(body), body["min_tokens"], body["max_tokens"], body["seed"], sampling
        )
        async for piece in alone.generate(request):
            yield to_text(piece.ids)
            if piece.finish:
                yield f"finish:{piece.finish}"

    try:
        with serving(speak) as server:
            yield server
    finally:
        asyncio.run(alone.close())
