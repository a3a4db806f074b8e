"""A speech LM behind any OpenAI-style LLM server: trtllm-serve, vllm serve, SGLang.

The server has the LM in its Hugging Face form. Repetition-aware sampling is not possible: it draws
by temperature and repetition penalty.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, NamedTuple

import httpx

from cosyserve.backends.llm_server import LLMServer
from cosyserve.backends.protocols import LMRequest, SpeechTokens, limited
from cosyserve.backends.sse import events
from cosyserve.backends.token_text import ENDS, TokenReader, to_text
from cosyserve.contracts import FinishReason
from cosyserve.errors import LLMServerError, OverloadError, WorkerError

PAUSES = (0.1, 0.4)  # seconds before another attempt; up to half as much is added at random
SEEDS = 1 << 63  # servers take 63 bits
DETAIL = 300  # characters of a server's complaint that are passed on
FINISHES: dict[str, FinishReason] = {"stop": "stop", "length": "length"}
DONE = "[DONE]"


class CompletionChunk(NamedTuple):
    """One event of a streamed completion."""

    text: str
    finish: str | None


class OpenAILLM:
    """Implements `LMBackend`."""

    def __init__(self, server: LLMServer, decode: Callable[[Sequence[int]], str]) -> None:
        """`decode` makes text of text ids, special tokens included."""
        self.server = server
        self._decode = decode
        key = {"Authorization": f"Bearer {server.api_key}"} if server.api_key else {}
        self._http = httpx.AsyncClient(
            base_url=server.url,
            headers=key,
            timeout=httpx.Timeout(None, connect=server.connect_seconds),
            limits=httpx.Limits(max_connections=None),
        )

    async def generate(self, request: LMRequest) -> AsyncGenerator[SpeechTokens, None]:
        """Tokens as they come. A failure before the first token is retried, a later one raised."""
        request = limited(request, self.server.sampling.max_tokens)
        vocabulary = self.server.vocabulary
        reader = TokenReader(vocabulary.speech, vocabulary.numbered)
        left, limit = request.max_tokens, "first"
        clock = asyncio.get_running_loop().time
        until = clock() + self.server.first_seconds
        async with contextlib.aclosing(self._chunks(request)) as chunks:
            while True:
                try:
                    async with asyncio.timeout_at(until):
                        chunk = await anext(chunks)
                except TimeoutError:
                    raise WorkerError(self._silent(limit)) from None
                tokens = reader.read(chunk.text)[:left]
                left -= len(tokens)
                finish = self._finish(chunk, reader, left)
                if tokens or finish:
                    yield SpeechTokens(tuple(tokens), finish)
                    limit, until = "next", clock() + self.server.between_seconds
                if finish:
                    return

    async def close(self) -> None:
        await self._http.aclose()

    def _finish(
        self, chunk: CompletionChunk, reader: TokenReader, left: int
    ) -> FinishReason | None:
        if reader.ended:
            return "stop"
        if not left:
            return "length"
        if chunk.finish is None:
            return None
        reader.close()
        if chunk.finish not in FINISHES:
            raise LLMServerError(f"the LLM server gave up: finish_reason {chunk.finish!r:.60}")
        return FINISHES[chunk.finish]

    def _silent(self, limit: str) -> str:
        server = self.server
        seconds = server.first_seconds if limit == "first" else server.between_seconds
        return f"the LLM server {server.url} gave no {limit} token within {seconds:g} s"

    async def _chunks(self, request: LMRequest) -> AsyncGenerator[CompletionChunk, None]:
        path = "chat/completions" if self.server.prompt == "chat" else "completions"
        body = self._body(request)
        for pause in (*PAUSES, None):
            has_text = False
            failure: WorkerError | OverloadError
            try:
                async with (
                    self._http.stream("POST", path, json=body) as response,
                    contextlib.aclosing(events(response.aiter_bytes())) as stream,
                ):
                    await self._check(response)
                    async for data in stream:
                        if data == DONE:
                            break
                        chunk = _parse_chunk(data)
                        has_text = has_text or bool(chunk.text)
                        yield chunk
                raise WorkerError(f"the LLM server {self.server.url} ended before the speech did")
            except httpx.TransportError as error:
                reason = str(error) or type(error).__name__
                failure = WorkerError(f"the LLM server {self.server.url} is gone: {reason}")
                failure.__cause__ = error
            except ValueError as error:
                raise LLMServerError(
                    f"the LLM server sends no events of OpenAI's: {error}"
                ) from error
            except (WorkerError, OverloadError) as error:
                failure = error
            wait = failure.retry_after if isinstance(failure, OverloadError) else 0.0
            if has_text or pause is None or wait > self.server.first_seconds:
                raise failure
            await asyncio.sleep(max(wait, pause * random.uniform(1.0, 1.5)))

    async def _check(self, response: httpx.Response) -> None:
        status = response.status_code
        if status == httpx.codes.OK:
            return
        complaint = _complaint(await response.aread())
        if status == httpx.codes.TOO_MANY_REQUESTS:
            wait = response.headers.get("retry-after", "")
            raise OverloadError(
                f"the LLM server is busy: {complaint}", float(wait) if wait.isdigit() else 0.0
            )
        if status >= 500:
            raise WorkerError(f"the LLM server failed with status {status}: {complaint}")
        raise LLMServerError(f"the LLM server refuses with status {status}: {complaint}")

    def _body(self, request: LMRequest) -> dict[str, Any]:
        server, sampling = self.server, self.server.sampling
        own = request.sampling or sampling
        body: dict[str, Any] = {
            "model": server.model,
            "stream": True,
            "max_tokens": request.max_tokens,
            "stop": list(ENDS),
            "seed": request.seed % SEEDS,
            "temperature": own.temperature,
            "top_p": own.top_p,
        }
        if server.extensions:
            body |= {
                "top_k": own.top_k,
                "min_tokens": request.min_tokens,
                "repetition_penalty": sampling.repetition_penalty,
                "skip_special_tokens": False,  # speech tokens may count as special
            }
        if server.prompt == "ids":
            return body | {"prompt": server.vocabulary.prompt(request)}
        text, speech_text = self._decode(request.text), to_text(request.speech)
        if server.prompt == "text":
            return body | {"prompt": f"<|sos|>{text}<|task_id|>{speech_text}"}
        messages = [{"role": "user", "content": text}]
        if speech_text:
            messages.append({"role": "assistant", "content": speech_text})
        return body | {"messages": messages}


def _parse_chunk(data: str) -> CompletionChunk:
    """An event of /completions or /chat/completions. Any other is a ValueError, or a complaint."""
    answer = json.loads(data)
    try:
        if not answer["choices"]:  # usage statistics come so
            return CompletionChunk("", None)
        choice = answer["choices"][0]
        text = choice["text"] if "text" in choice else choice["delta"].get("content")
        return CompletionChunk(str(text or ""), choice.get("finish_reason"))
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise LLMServerError(f"the LLM server says: {_complaint(data.encode())}") from error


def _complaint(body: bytes) -> str:
    """The message of an error in OpenAI's form or a plainer one, or what there is instead."""
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
        answer = json.loads(body)
        return str(answer.get("error", answer)["message"])[:DETAIL]
    return body.decode("utf-8", "replace")[:DETAIL]
