"""The record of one request, for its log line and the metrics.

It holds the length of a text, never the text.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cosyserve.contracts import Timeline


@dataclass
class Record:
    """Filled in while the request is served."""

    request_id: str
    method: str
    path: str
    body_pending: bool = False  # some of the request was not read yet
    client: str = ""  # who asks: a key, by its name, or an address
    started: float = field(default_factory=time.perf_counter)
    status: int = 0
    answered: bool = False  # completely
    client_left: bool = False  # before it was
    bytes_out: int = 0
    characters: int = 0
    consent: str = ""  # to the use of the voice in the request's own recording
    first_audio: float | None = None  # seconds after `started`
    first_audible: float | None = None  # the same, for who plays it: without the silence before it
    speaking_seconds: float | None = None  # from the engine's start to its last chunk
    audio_seconds: float = 0.0
    underruns: int = 0
    underrun_seconds: float = 0.0
    finish: str = ""
    error: str = ""
    failed: bool = False  # by a fault that is not the client's
    abort: str = ""  # why speech that was being made did not come to its end
    model: str = ""  # that was asked to speak; "": none was
    text_tokens: int = 0
    tokens: int = 0
    retries: int = 0  # utterances that were drawn once more
    timeline: Timeline | None = None  # of the engine, the newest that it told
    entered: float = 0.0  # when that timeline began, by the clock of `started`
    first_sent: float | None = None  # by that timeline; None: nothing of the chunk was heard
    last_chunk: float = 0.0  # when it came
    encode_began: float | None = None
    encode_ended: float = 0.0
    encode_seconds: float = 0.0
    traceparent: str = ""  # what the client says of its trace
    trace_id: str = ""  # of the span that was made of this
    headers: dict[str, str] = field(default_factory=dict)  # of the answer, whatever it is

    def part(self, number: int, method: str, path: str) -> Record:
        """The record of one of the things that this request asks for."""
        return Record(
            f"{self.request_id}.{number}",
            method,
            path,
            client=self.client,
            traceparent=self.traceparent,
        )

    def take_chunk(self, timeline: Timeline | None, now: float, *, heard: bool) -> None:
        self.last_chunk = now
        if timeline:
            if self.timeline is None:  # a later chunk may have waited for a slow client
                self.entered = now - timeline.sent
                self.first_sent = timeline.sent if heard else None
            self.timeline = timeline

    def take_encoding(self, began: float, ended: float) -> None:
        self.encode_began = began if self.encode_began is None else self.encode_began
        self.encode_ended = ended
        self.encode_seconds += ended - began

    def stages(self) -> dict[str, float]:
        """Seconds until the first audio, by what they went to: `rest` is all that is outside the
        engine. {}: it does not tell, or its first chunk was silence that is left out."""
        timeline, sent, first_audio = self.timeline, self.first_sent, self.first_audio
        if timeline is None or sent is None or first_audio is None:
            return {}
        return {
            "plan": timeline.planned,
            "slot": timeline.admitted - timeline.planned,
            "tokens": timeline.first_tokens - timeline.admitted,
            "chunk": sent - timeline.first_tokens,
            "rest": first_audio - sent,
        }

    def line(self, seconds: float) -> str:
        facts: dict[str, object] = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "request_id": self.request_id,
            "method": self.method,
            "path": self.path,
            "status": self.status,
            "seconds": round(seconds, 4),
            "client": self.client,
        }
        if self.error:
            facts["error"] = self.error
        if self.characters:
            facts["characters"] = self.characters
        if self.consent:
            facts["consent"] = self.consent
        if self.first_audio is not None:
            facts["first_audio_ms"] = round(1000 * self.first_audio, 1)
            if self.first_audible is not None:
                facts["first_audible_ms"] = round(1000 * self.first_audible, 1)
            if stages := self.stages():
                facts["stages_ms"] = {name: round(1000 * took, 1) for name, took in stages.items()}
            facts["audio_s"] = round(self.audio_seconds, 3)
            facts["underruns"] = self.underruns
            facts["finish"] = self.finish
            if self.retries:
                facts["retries"] = self.retries
        if self.trace_id:
            facts["trace_id"] = self.trace_id
        return json.dumps(facts, ensure_ascii=False)
