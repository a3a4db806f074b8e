"""A speech LM behind any OpenAI-style LLM server: trtllm-serve, vllm serve, SGLang.

The server has the LM in its Hugging Face format, whose vocabulary is text, speech tokens, three
ends, start and task. Knows no text of its own and no audio.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import httpx

from cosyserve.backends.protocols import LMRequest, SpeechTokens
from cosyserve.backends.sse import events
from cosyserve.backends.token_text import ENDS, LLMServerError, TokenReader, written
from cosyserve.contracts import FinishReason
from cosyserve.errors import InputError, OverloadError, WorkerError

PAUSES = (0.1, 0.4)  # seconds before another attempt, half as much again by chance
SEEDS = 1 << 63  # servers take 63 bits
DETAIL = 300  # characters of a server's complaint that are passed on
FINISHES: dict[str, FinishReason] = {"stop": "stop", "length": "length"}
DONE = "[DONE]"


@dataclass(frozen=True)
class LLMServer:
    """Where the server is, and how it wants to be asked."""

    url: str  # with OpenAI's /v1
    model: str  # the name it serves the LM under
    api_key: str = field(default="", repr=False)
    prompt: Literal["ids", "text", "chat"] = "ids"
    """Ids and text go to /completions. Ids are exact; text is tokenised again by the server."""
    extensions: bool = True
    """Whether it knows top_k, min_tokens and repetition_penalty, which OpenAI's API lacks."""
    temperature: float = 1.0
    repetition_penalty: float = 1.0
    connect_seconds: float = 2.0
    first_seconds: float = 10.0  # until the first token, further attempts included
    between_seconds: float = 5.0  # from one token to the next
    text_vocab: int = 151_663  # ids before <|s_0|>
    speech_tokens: int = 6561

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise InputError(
                f"{self.url!r} is no URL of an LLM server, e.g. http://localhost:8000/v1"
            )
        if min(self.connect_seconds, self.first_seconds, self.between_seconds) <= 0:
            raise InputError("the time limits of an LLM server must be more than 0 s")

    @property
    def start(self) -> int:
        return self.text_vocab + self.speech_tokens + len(("eos1", "eos2", "eos3"))

    @property
    def task(self) -> int:
        return self.start + 1


class Piece(NamedTuple):
    text: str
    finish: str | None


class OpenAILLM:
    """Implements `LMBackend`."""

    def __init__(self, server: LLMServer, decode: Callable[[Sequence[int]], str]) -> None:
        """`decode` makes text of text ids, special tokens included."""
        self.server, self._decode = server, decode
        key = {"Authorization": f"Bearer {server.api_key}"} if server.api_key else {}
        self._http = httpx.AsyncClient(
            base_url=server.url,
            headers=key,
            timeout=httpx.Timeout(None, connect=server.connect_seconds),
            limits=httpx.Limits(max_connections=None),
        )

    async def generate(self, request: LMRequest) -> AsyncGenerator[SpeechTokens, None]:
        """What fails before the first token is tried again; what fails later is an error."""
        reader, left, limit = TokenReader(self.server.speech_tokens), request.max_tokens, "first"
        clock = asyncio.get_running_loop().time
        until = clock() + self.server.first_seconds
        async with contextlib.aclosing(self._answer(request)) as pieces:
            while True:
                try:
                    async with asyncio.timeout_at(until):
                        piece = await anext(pieces)
                except TimeoutError:
                    raise WorkerError(self._silent(limit)) from None
                tokens = reader.read(piece.text)[:left]
                left -= len(tokens)
                finish = self._finish(piece, reader, left)
                if tokens or finish:
                    yield SpeechTokens(tuple(tokens), finish)
                    limit, until = "next", clock() + self.server.between_seconds
                if finish:
                    return

    async def close(self) -> None:
        await self._http.aclose()

    def _finish(self, piece: Piece, reader: TokenReader, left: int) -> FinishReason | None:
        if reader.ended:
            return "stop"
        if not left:
            return "length"
        if piece.finish is None:
            return None
        reader.close()
        if piece.finish not in FINISHES:
            raise LLMServerError(f"the LLM server gave up: finish_reason {piece.finish!r:.60}")
        return FINISHES[piece.finish]

    def _silent(self, limit: str) -> str:
        server = self.server
        seconds = server.first_seconds if limit == "first" else server.between_seconds
        return f"the LLM server {server.url} gave no {limit} token within {seconds:g} s"

    async def _answer(self, request: LMRequest) -> AsyncGenerator[Piece, None]:
        path = "chat/completions" if self.server.prompt == "chat" else "completions"
        body = self._body(request)
        for pause in (*PAUSES, None):
            begun = False
            failure: WorkerError | OverloadError
            try:
                async with (
                    self._http.stream("POST", path, json=body) as response,
                    contextlib.aclosing(events(response.aiter_bytes())) as found,
                ):
                    await self._check(response)
                    async for data in found:
                        if data == DONE:
                            break
                        piece = _piece(data)
                        begun = begun or bool(piece.text)
                        yield piece
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
            if begun or pause is None or wait > self.server.first_seconds:
                raise failure
            await asyncio.sleep(max(wait, pause * random.uniform(1.0, 1.5)))

    async def _check(self, response: httpx.Response) -> None:
        status = response.status_code
        if status == httpx.codes.OK:
            return
        said = _complaint(await response.aread())
        if status == httpx.codes.TOO_MANY_REQUESTS:
            wait = response.headers.get("retry-after", "")
            raise OverloadError(
                f"the LLM server is busy: {said}", float(wait) if wait.isdigit() else 0.0
            )
        if status >= 500:
            raise WorkerError(f"the LLM server failed with status {status}: {said}")
        raise LLMServerError(f"the LLM server refuses with status {status}: {said}")

    def _body(self, request: LMRequest) -> dict[str, Any]:
        server, sampling = self.server, request.sampling
        body: dict[str, Any] = {
            "model": server.model,
            "stream": True,
            "max_tokens": request.max_tokens,
            "stop": list(ENDS),
            "seed": request.seed % SEEDS,
            "temperature": server.temperature,
            "top_p": sampling.top_p,
        }
        if server.extensions:
            body |= {
                "top_k": sampling.top_k,
                "min_tokens": request.min_tokens,
                "repetition_penalty": server.repetition_penalty,
                "skip_special_tokens": False,  # speech tokens may count as special
            }
        if server.prompt == "ids":
            speech = (server.text_vocab + token for token in request.speech)
            return body | {"prompt": [server.start, *request.text, server.task, *speech]}
        text, speech_text = self._decode(request.text), written(request.speech)
        if server.prompt == "text":
            return body | {"prompt": f"<|sos|>{text}<|task_id|>{speech_text}"}
        messages = [{"role": "user", "content": text}]
        if speech_text:
            messages.append({"role": "assistant", "content": speech_text})
        return body | {"messages": messages}


def _piece(data: str) -> Piece:
    """Of /completions or /chat/completions. What is neither is a ValueError, or a complaint."""
    answer = json.loads(data)
    try:
        if not answer["choices"]:  # figures of use come so
            return Piece("", None)
        choice = answer["choices"][0]
        text = choice["text"] if "text" in choice else choice["delta"].get("content")
        return Piece(str(text or ""), choice.get("finish_reason"))
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise LLMServerError(f"the LLM server says: {_complaint(data.encode())}") from error


def _complaint(body: bytes) -> str:
    """The message of an error in OpenAI's form or a plainer one, or what there is instead."""
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
        answer = json.loads(body)
        return str(answer.get("error", answer)["message"])[:DETAIL]
    return body.decode("utf-8", "replace")[:DETAIL]
