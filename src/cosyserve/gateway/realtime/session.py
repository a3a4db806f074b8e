"""The settings of a Realtime session, which hold for all responses that say nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from cosyserve.gateway.errors import Refusal
from cosyserve.gateway.limits import MAX_TEXT
from cosyserve.gateway.realtime.messages import FORMATS, PCM, PCMU, SpokenFields, VoiceId
from cosyserve.gateway.speech.body import SpeechFields
from cosyserve.voices.store import DEFAULT

# Instructions tell a model that converses to read aloud, which this one does anyhow. The rest of
# them is for it where wyoming-openai puts the words of its own user.
STYLE_MARK = "Delivery style:"


@dataclass(frozen=True)
class RealtimeSession:
    model: str
    voice: str = DEFAULT
    speed: float = 1.0
    format: PCM | PCMU = field(default_factory=PCM)
    style: str = ""

    def updated(self, fields: SpokenFields) -> RealtimeSession:
        """The session with what the fields change of it."""
        changes: dict[str, Any] = {}
        output = fields.audio and fields.audio.output
        if output:
            voice = output.voice.id if isinstance(output.voice, VoiceId) else output.voice
            given = {"voice": voice, "speed": output.speed, "format": output.format}
            changes = {name: value for name, value in given.items() if value is not None}
        if fields.instructions is not None:
            changes["style"] = _style(fields.instructions)
        return replace(self, **changes)

    @property
    def fields(self) -> SpeechFields:
        return SpeechFields(
            model=self.model,
            voice=self.voice,
            speed=self.speed,
            instructions=self.style,
            response_format=FORMATS[self.format.type],
        )

    @property
    def output(self) -> dict[str, Any]:
        """`audio.output` as clients are told."""
        return {"format": self.format.model_dump(), "voice": self.voice, "speed": self.speed}


def _style(instructions: str) -> str:
    style = instructions.partition(STYLE_MARK)[2].strip()
    if len(style) > MAX_TEXT:
        message = f"the delivery style has {len(style)} characters; the limit is {MAX_TEXT}"
        raise Refusal(400, message, "invalid_value", param="instructions")
    return style
