"""A real LLM server on a free port: OpenAI's two streamed endpoints, and faults on demand."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from tests.waiting import wait_until

SPOKEN = "<|s_1|><|s_22|><|s_333|>"
Text = AsyncIterator[str]
Speaker = Callable[[dict[str, Any]], Text]


class Cut(Exception):  # noqa: N818 - not an error of the server, but its death
    """Ends the connection where it is."""


@dataclass
class LLMServer:
    """`answers` come first, one a request; then `speaker` is asked."""

    speaker: Speaker
    url: str = ""
    answers: list[Response | Speaker] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    inside: int = 0  # streams that are being written

    async def answer(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(request.headers)
        answer = self.answers.pop(0) if self.answers else self.speaker
        if isinstance(answer, Response):
            return answer
        events = self._events(answer(body), chat="messages" in body)
        return StreamingResponse(events, media_type="text/event-stream")

    async def _events(self, text: Text, chat: bool) -> AsyncIterator[bytes]:
        self.inside += 1
        try:
            if chat:
                yield event({"delta": {"role": "assistant", "content": ""}})
            finish = None
            async for piece in text:
                if piece.startswith("finish:"):
                    finish = piece.removeprefix("finish:")
                elif piece.startswith("raw:"):
                    yield piece.removeprefix("raw:").encode()
                else:
                    yield event({"delta": {"content": piece}} if chat else {"text": piece})
            if finish:
                end = {"finish_reason": finish}
                yield event(end | ({"delta": {}} if chat else {"text": ""}))
            yield b"data: [DONE]\n\n"
        finally:
            self.inside -= 1

    def wait_until_idle(self) -> None:
        wait_until(lambda: not self.inside, "the server still writes")


def event(choice: dict[str, Any]) -> bytes:
    whole = {"id": "1", "choices": [{"index": 0, "finish_reason": None} | choice]}
    return f"data: {json.dumps(whole)}\n\n".encode()


def says(*pieces: str | float, finish: str = "stop") -> Speaker:
    """These pieces of text; a number is a pause in seconds."""

    async def speak(body: dict[str, Any]) -> Text:
        for piece in pieces:
            if isinstance(piece, str):
                yield piece
            else:
                await asyncio.sleep(piece)
        yield f"finish:{finish}"

    return speak


def dies_after(*pieces: str) -> Speaker:
    async def speak(body: dict[str, Any]) -> Text:
        for piece in pieces:
            yield piece
            await asyncio.sleep(0.02)
        raise Cut

    return speak


async def never_ends(body: dict[str, Any]) -> Text:
    while True:
        yield "<|s_7|>"  # no silence, of which little is heard
        await asyncio.sleep(0.001)


def refuses(status: int, **headers: str) -> Response:
    return JSONResponse({"error": {"message": "not now"}}, status, headers)


@contextmanager
def serving(speaker: Speaker) -> Iterator[LLMServer]:
    server = LLMServer(speaker)
    app = FastAPI()
    for path in ("/v1/completions", "/v1/chat/completions"):
        app.add_api_route(path, server.answer, methods=["POST"])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server.url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1)
        running = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(running.serve(sockets=[listener])))
        thread.start()
        try:
            while not running.started:
                time.sleep(0.002)
            yield server
        finally:
            running.should_exit = True
            thread.join()
