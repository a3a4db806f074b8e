"""What an utterance says of itself while it is spoken."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, Field

from cosyserve.gateway.errors import ErrorBody, Refusal
from cosyserve.gateway.speech.framing import Usage
from cosyserve.gateway.speech.word_times import Spoken, WordTimes


class StartedEvent(BaseModel):
    type: Literal["started"] = "started"
    request_id: str
    content_type: str
    sample_rate: int


class WordsEvent(WordTimes):
    """Words that were heard in the audio before, each told once and in their order."""

    type: Literal["words"] = "words"
    request_id: str

    def later(self, seconds: float) -> WordsEvent:
        """The same behind so many seconds of other speech."""
        start, end = ([round(seconds + t, 3) for t in times] for times in (self.start, self.end))
        return self.model_copy(update={"start": start, "end": end})


class DoneEvent(BaseModel):
    type: Literal["done"] = "done"
    request_id: str
    finish_reason: str  # as of an `AudioChunk`
    usage: Usage

    def after(self, earlier: DoneEvent, characters: int) -> Self:
        """The same of all utterances of a stream so far; `characters`: of its text before the
        last one."""
        return self.model_copy(update={"usage": earlier.usage + self.usage})


class TimedDoneEvent(DoneEvent):
    """Of an utterance whose words are told."""

    spoken: Spoken

    def after(self, earlier: DoneEvent, characters: int) -> Self:
        done = super().after(earlier, characters)
        if isinstance(earlier, TimedDoneEvent):
            done.spoken = self.spoken.after(earlier.spoken, characters)
        return done


class ErrorEvent(BaseModel):
    """An error. `request_id` is that of the utterance which it ends; None: it ends none."""

    type: Literal["error"] = "error"
    request_id: str | None
    error: ErrorBody
    retry_after: int | None  # seconds
    status: int = Field(exclude=True)  # as over HTTP

    @classmethod
    def of(cls, refusal: Refusal, request_id: str | None = None) -> ErrorEvent:
        error = refusal.envelope.error
        wait = (refusal.headers or {}).get("Retry-After")
        return cls(
            request_id=request_id,
            error=error,
            retry_after=int(wait) if wait else None,
            status=refusal.status_code,
        )


ServerEvent = StartedEvent | WordsEvent | DoneEvent | ErrorEvent
