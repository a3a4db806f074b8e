"""The record of one request, for its log line and the metrics.

It holds the length of a text, never the text.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime


@dataclass
class Record:
    """Filled in while the request is served."""

    request_id: str
    method: str
    path: str
    body_pending: bool = False  # some of the request was not read yet
    started: float = field(default_factory=time.perf_counter)
    status: int = 0
    answered: bool = False  # completely
    bytes_out: int = 0
    characters: int = 0
    consent: str = ""  # to the use of the voice in the request's own recording
    first_audio: float | None = None  # seconds after `started`
    speaking_seconds: float | None = None  # from the engine's start to its last chunk
    audio_seconds: float = 0.0
    underruns: int = 0
    finish: str = ""
    error: str = ""

    def line(self, seconds: float) -> str:
        facts: dict[str, object] = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "request_id": self.request_id,
            "method": self.method,
            "path": self.path,
            "status": self.status,
            "seconds": round(seconds, 4),
        }
        if self.error:
            facts["error"] = self.error
        if self.characters:
            facts["characters"] = self.characters
        if self.consent:
            facts["consent"] = self.consent
        if self.first_audio is not None:
            facts["first_audio_ms"] = round(1000 * self.first_audio, 1)
            facts["audio_s"] = round(self.audio_seconds, 3)
            facts["underruns"] = self.underruns
            facts["finish"] = self.finish
        return json.dumps(facts, ensure_ascii=False)
