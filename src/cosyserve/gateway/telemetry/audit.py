"""What is done with the voices of people, a line each in the log: who did it, and who agreed.

The model's own voices are nobody's. No line holds a text.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Literal

from cosyserve.contracts import Voice
from cosyserve.gateway.telemetry.record import Record

Event = Literal["voice.learned", "voice.stored", "voice.spoken", "voice.removed"]

log = logging.getLogger("cosyserve.audit")


def note(
    event: Event,
    record: Record,
    voice: Voice | None = None,
    *,
    id: str = "",
    watermark: bool | None = None,
) -> None:
    """`id` is the name under which a voice is stored; `watermark`: whether speech has one."""
    facts: dict[str, str | bool] = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "audit": event,
        "request_id": record.request_id,
        "client": record.client,
        "voice": id or (voice.name if voice else ""),
    }
    if voice:
        facts |= {"voice_hash": voice.content_hash, "consent": voice.consent}
    if watermark is not None:
        facts["watermark"] = watermark
    log.info("%s", json.dumps(facts, ensure_ascii=False))
