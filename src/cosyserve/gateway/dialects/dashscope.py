"""DashScope's WebSocket, by which Alibaba's cloud offers CosyVoice: tasks, one at a time."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from cosyserve.audio import AudioFormat
from cosyserve.gateway.connection.context import ConnectionContext
from cosyserve.gateway.connection.events import DoneEvent, ErrorEvent, ServerEvent, StartedEvent
from cosyserve.gateway.connection.streams import SpeechStream
from cosyserve.gateway.dialects.dialect import (
    DialectConnection,
    audio_format,
    out_of_order,
    read,
    route,
)
from cosyserve.gateway.errors import ErrorBody, Refusal, invalid_value
from cosyserve.gateway.speech.body import Name
from cosyserve.text.pronunciation.phonemes import from_pinyin
from cosyserve.voices.store import DEFAULT

PATH = "/api-ws/v1/inference"
FORMATS = {
    "mp3": AudioFormat.MP3,
    "wav": AudioFormat.WAV,
    "pcm": AudioFormat.PCM,
    "opus": AudioFormat.OPUS,
    "Default": AudioFormat.MP3,  # as the SDK says it, with 0 as the sample rate
}
DEFAULT_RATE = 22_050
CODES = {"invalid_request_error": "InvalidParameter", "rate_limit_error": "Throttling"}


class Header(BaseModel):
    action: Literal["run-task", "continue-task", "finish-task"]
    task_id: Name


class HotFix(BaseModel):
    """Words by their pinyin, and words by others that are said instead."""

    pronunciation: list[dict[str, str]] = Field(default_factory=list)
    replace: list[dict[str, str]] = Field(default_factory=list)

    @property
    def lexicon(self) -> dict[str, str]:
        said = {word: text for entry in self.replace for word, text in entry.items()}
        by_sound = {word: py for entry in self.pronunciation for word, py in entry.items()}
        return said | {word: from_pinyin(pinyin) for word, pinyin in by_sound.items()}


class Parameters(BaseModel):
    """Volume, pitch and what else is missing here is not read."""

    voice: Name = DEFAULT
    format: str = "mp3"
    sample_rate: int = 0
    rate: float = 1.0
    seed: int = 0
    instruction: str | None = None
    language_hints: list[str] | None = None
    text_type: Literal["PlainText", "SSML"] = "PlainText"
    hot_fix: HotFix | None = None
    word_timestamp_enabled: bool = False


class TaskInput(BaseModel):
    text: str = ""
    flush: bool = False
    directive: Literal["cancel"] | None = None


class Payload(BaseModel):
    model: str = ""
    parameters: Parameters = Field(default_factory=Parameters)
    input: TaskInput = Field(default_factory=TaskInput)


class Task(BaseModel):
    header: Header
    payload: Payload = Field(default_factory=Payload)


def routes(context: ConnectionContext) -> APIRouter:
    router = APIRouter(tags=["speech"])
    about = "A WebSocket: `run-task`, `continue-task` and `finish-task`, as DashScope has them."
    route(router, PATH, DashScopeConnection, context, about)
    return router


class DashScopeConnection(DialectConnection):
    protocol = "DASHSCOPE"
    own_models = "cosyvoice-"
    text_path = ("payload", "input", "text")

    _task_id = ""  # of the message that is being read

    async def take(self, message: dict[str, Any]) -> None:
        header = message.get("header")
        self._task_id = str(header.get("task_id", ""))[:200] if isinstance(header, dict) else ""
        task = read(Task, message)
        if task.header.action == "run-task":
            self._run(task.payload)
        else:
            await self._go_on(task)

    async def tell(self, stream: SpeechStream, item: ServerEvent | bytes) -> None:
        index = stream.utterances - 1
        match item:
            case StartedEvent():
                if not index:
                    await self._event(stream.name, "task-started")
                await self._result(stream.name, "sentence-begin", index)
            case bytes() if item:
                await self._result(stream.name, "sentence-synthesis", index)
                await self.send_audio(item)
            case DoneEvent() if item.finish_reason != "cancelled":
                await self._result(stream.name, "sentence-end", index)
            case ErrorEvent():
                await self._fail(stream.name, item.error)

    async def tell_over(self, stream: SpeechStream) -> None:
        if not stream.failed:
            usage = {"characters": stream.characters}
            payload: dict[str, Any] = {"output": {"sentence": {"words": []}}, "usage": usage}
            await self._event(stream.name, "task-finished", payload)

    async def refuse(self, refusal: Refusal) -> None:
        await self._fail(self._task_id, refusal.envelope.error)

    def _run(self, payload: Payload) -> None:
        if any(not stream.failed for stream in self.streams.values()):
            raise out_of_order("one task at a time: wait for 'task-finished'")
        parameters = payload.parameters
        if parameters.word_timestamp_enabled:
            raise invalid_value(
                "there are no times of words: leave it out", ["word_timestamp_enabled"]
            )
        kind = audio_format(parameters.format, FORMATS)
        default_rate = None if kind is AudioFormat.OPUS else DEFAULT_RATE
        fields = self.fields(
            payload.model,
            voice=parameters.voice,
            response_format=kind,
            sample_rate=parameters.sample_rate or default_rate,
            speed=parameters.rate,
            seed=parameters.seed,
            instructions=parameters.instruction,
            lexicon=parameters.hot_fix.lexicon if parameters.hot_fix else {},
            language=next(iter(parameters.language_hints or ()), None),
        )
        self.streams.clear()  # of failed ones
        stream = self.open_stream(self._task_id, fields)
        stream.start()
        stream.push(payload.input.text)

    async def _go_on(self, task: Task) -> None:
        stream, given = self.streams.get(task.header.task_id), task.payload.input
        if task.header.action == "finish-task" and given.directive == "cancel":
            if stream:  # else it comes too late, which is no mistake
                stream.clear()
                stream.end()
                await self.settle(stream)
            return
        if stream is None or stream.ended:
            raise out_of_order(f"no such task is open: '{task.header.action}' follows 'run-task'")
        stream.push(given.text)
        if given.flush:
            stream.flush()
        if task.header.action == "finish-task":
            stream.end()
            await self.settle(stream)

    async def _fail(self, task_id: str, error: ErrorBody) -> None:
        told = told_error(error)
        await self._event(
            task_id, "task-failed", error_code=told["code"], error_message=told["message"]
        )

    async def _result(self, task_id: str, kind: str, index: int) -> None:
        sentence = {"index": index, "words": []}
        await self._event(
            task_id, "result-generated", {"output": {"sentence": sentence, "type": kind}}
        )

    async def _event(
        self, task_id: str, event: str, payload: dict[str, Any] | None = None, **header: str
    ) -> None:
        told = {"task_id": task_id, "event": event, "attributes": {}, **header}
        await self.say({"header": told, "payload": payload or {}})


def told_error(error: ErrorBody) -> dict[str, str]:
    """An error in DashScope's words."""
    return {"code": CODES.get(error.type, "InternalError"), "message": error.message}
