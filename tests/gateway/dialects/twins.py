"""Clients of other services, each as its own service knows it, and one of our own contexts."""

from __future__ import annotations

import base64
from typing import Any

from tests.gateway.dialects.twin import Event, Twin


class DashScope(Twin):
    path = "/api-ws/v1/inference"
    key_header = ("Authorization", "bearer KEY")

    def act(self, action: str, **payload: Any) -> None:
        header = {"action": action, "task_id": self.name, "streaming": "duplex"}
        self.send({"header": header, "payload": {"input": {}} | payload})

    def start(self, voice: str = "default", **parameters: Any) -> None:
        asked = {"voice": voice, "volume": 50, "text_type": "PlainText", "sample_rate": 24_000}
        asked |= {"rate": 1.0, "format": "pcm", "pitch": 1.0, "seed": 0, "type": 0} | parameters
        self.act("run-task", model="cosyvoice-v3-flash", task_group="audio", parameters=asked)

    def text(self, piece: str) -> None:
        self.act("continue-task", input={"text": piece})

    def flush(self) -> None:
        self.act("continue-task", input={"flush": True})

    def end(self) -> None:
        self.act("finish-task")

    def cancel(self) -> None:
        self.act("finish-task", input={"directive": "cancel"})

    def is_over(self, event: Event) -> bool:
        return bool(event["header"]["event"] == "task-finished")

    def error(self, event: Event) -> str:
        return str(event["header"].get("error_message", ""))


class ElevenLabs(Twin):
    """A context of a connection with several."""

    path = "/v1/text-to-speech/default/multi-stream-input?output_format=pcm_24000"
    key_header = ("xi-api-key", "KEY")

    def tell(self, **fields: Any) -> None:
        self.send({"context_id": self.name, **fields})

    def start(self, voice: str = "default") -> None:
        self.tell(text=" ", voice_settings={"stability": 0.5})

    def text(self, piece: str) -> None:
        self.tell(text=piece)

    def end(self) -> None:
        self.tell(text="", flush=True)
        self.tell(close_context=True)

    def cancel(self) -> None:
        self.tell(close_context=True)

    def is_over(self, event: Event) -> bool:
        return event.get("isFinal") is True

    def error(self, event: Event) -> str:
        return str(event.get("message", ""))

    def audio(self, event: Event) -> bytes:
        return base64.b64decode(event.get("audio") or "")


class Cartesia(Twin):
    path = "/tts/websocket?cartesia_version=2025-04-16"
    key_header = ("X-API-Key", "KEY")
    voice = "default"
    timestamps = False

    def piece(self, transcript: str, **fields: Any) -> None:
        asked = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}
        message = {
            "context_id": self.name,
            "model_id": "sonic-3",
            "voice": {"mode": "id", "id": self.voice},
            "output_format": asked,
            "add_timestamps": self.timestamps,
            "language": "en",
            "transcript": transcript,
            "continue": True,
        }
        self.send(message | fields)

    def start(self, voice: str = "default") -> None:
        self.voice = voice

    def text(self, piece: str) -> None:
        self.piece(piece)

    def flush(self) -> None:
        self.piece("", flush=True)

    def end(self) -> None:
        self.piece(" ", **{"continue": False})

    def cancel(self) -> None:
        self.send({"context_id": self.name, "cancel": True})

    def is_over(self, event: Event) -> bool:
        return bool(event["type"] == "done")

    def error(self, event: Event) -> str:
        return str(event["message"]) if event["type"] == "error" else ""

    def audio(self, event: Event) -> bytes:
        return base64.b64decode(event.get("data", ""))


class Deepgram(Twin):
    path = "/v1/speak?model=default&encoding=linear16&sample_rate=24000"
    key_header = ("Authorization", "Token KEY")

    def greet(self) -> None:
        greeting = self.hear_next()
        assert isinstance(greeting, dict)
        assert greeting["type"] == "Metadata"

    def start(self, voice: str = "default") -> None:
        """There is nothing to say."""

    def text(self, piece: str) -> None:
        self.send({"type": "Speak", "text": piece})

    def end(self) -> None:
        self.send({"type": "Flush"})

    def cancel(self) -> None:
        self.send({"type": "Clear"})

    def is_over(self, event: Event) -> bool:
        return event["type"] in ("Flushed", "Cleared")

    def error(self, event: Event) -> str:
        return str(event["description"]) if event["type"] == "Error" else ""


class Omni(Twin):
    path = "/v1/audio/speech/stream"
    key_header = ("Authorization", "Bearer KEY")

    def start(self, voice: str = "default", **fields: Any) -> None:
        asked = {"model": "tts-1", "voice": voice, "response_format": "pcm", "stream_audio": True}
        self.send({"type": "session.config", **asked, **fields})

    def text(self, piece: str) -> None:
        self.send({"type": "input.text", "text": piece})

    def end(self) -> None:
        self.send({"type": "input.done"})

    def cancel(self) -> None:
        """There is no such message."""
        self.end()

    def is_over(self, event: Event) -> bool:
        return bool(event["type"] == "session.done")

    def error(self, event: Event) -> str:
        if event["type"] != "error":
            return ""
        return str(event["message"] if "message" in event else event["error"]["message"])


class Websocket(Twin):
    """A context of our own protocol."""

    path = "/v1/audio/speech/stream"
    key_header = ("Authorization", "Bearer KEY")

    def tell(self, kind: str, **fields: Any) -> None:
        self.send({"type": kind, "context": self.name, **fields})

    def start(self, voice: str = "default", **fields: Any) -> None:
        self.tell("start", voice=voice, **{"response_format": "pcm", "audio": "base64"} | fields)

    def text(self, piece: str) -> None:
        self.tell("text", text=piece)

    def end(self) -> None:
        self.tell("end")

    def cancel(self) -> None:
        self.tell("cancel")

    def flush(self) -> None:
        self.tell("flush")

    def is_over(self, event: Event) -> bool:
        return bool(event["type"] == "done")

    def error(self, event: Event) -> str:
        return str(event["error"]["message"]) if event["type"] == "error" else ""

    def audio(self, event: Event) -> bytes:
        return base64.b64decode(event.get("audio", ""))


STOPPABLE = [DashScope, ElevenLabs, Cartesia, Deepgram, Websocket]
TWINS = [*STOPPABLE, Omni]
