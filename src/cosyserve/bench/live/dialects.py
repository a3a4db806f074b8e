"""The messages of services that take text in pieces, as their clients send and read them.

All of them ask for 16-bit samples at 24 kHz, and for times of words where there are any.
"""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote

from cosyserve.bench.live.dialect import NOTHING, Dialect, Event, Heard
from cosyserve.contracts import SAMPLE_RATE


class Ours(Dialect):
    tells_words = True

    def path(self, voice: str) -> str:
        return "/v1/audio/speech/stream"

    def begin(self, turn: str, voice: str, model: str) -> list[Event]:
        asked = {"model": model, "voice": voice, "response_format": "pcm", "timestamps": "word"}
        return [{"type": "start", **asked}]

    def text(self, turn: str, piece: str) -> Event:
        return {"type": "text", "text": piece}

    def end(self, turn: str) -> list[Event]:
        return [{"type": "end"}]

    def cancel(self, turn: str) -> Event:
        return {"type": "cancel"}

    def hear_event(self, event: Event) -> Heard:
        match event["type"]:
            case "error":
                return Heard(error=event["error"]["message"])
            case "words":
                return Heard(word_ends=tuple(event["end"]))
            case "done":
                return Heard(over=True, spoken=event.get("spoken", {}).get("words"))
        return NOTHING


class OursInContexts(Ours):
    """Our own, with a context for each turn."""

    def begin(self, turn: str, voice: str, model: str) -> list[Event]:
        return [event | {"context": turn} for event in super().begin(turn, voice, model)]

    def text(self, turn: str, piece: str) -> Event:
        return super().text(turn, piece) | {"context": turn}

    def end(self, turn: str) -> list[Event]:
        return [event | {"context": turn} for event in super().end(turn)]

    def cancel(self, turn: str) -> Event:
        return super().cancel(turn) | {"context": turn}

    def turn_of(self, event: Event) -> str | None:
        return event.get("context")

    def audio_of(self, frame: bytes, turn: str) -> bytes:
        length = 1 + frame[0]
        return frame[length:] if frame[1:length] == turn.encode() else b""


class DashScope(Dialect):
    def path(self, voice: str) -> str:
        return "/api-ws/v1/inference"

    def begin(self, turn: str, voice: str, model: str) -> list[Event]:
        asked = {"voice": voice, "format": "pcm", "sample_rate": SAMPLE_RATE}
        return [self._act("run-task", turn, model=model, parameters=asked)]

    def text(self, turn: str, piece: str) -> Event:
        return self._act("continue-task", turn, input={"text": piece})

    def end(self, turn: str) -> list[Event]:
        return [self._act("finish-task", turn)]

    def cancel(self, turn: str) -> Event:
        return self._act("finish-task", turn, input={"directive": "cancel"})

    def turn_of(self, event: Event) -> str | None:
        return str(event["header"]["task_id"])

    def hear_event(self, event: Event) -> Heard:
        header = event["header"]
        over = header["event"] == "task-finished"
        return Heard(over=over, error=header.get("error_message", ""))

    def _act(self, action: str, turn: str, **payload: Any) -> Event:
        header = {"action": action, "task_id": turn, "streaming": "duplex"}
        asked = {"task_group": "audio", "task": "tts", "function": "SpeechSynthesizer"}
        return {"header": header, "payload": asked | {"input": {}} | payload}


class ElevenLabs(Dialect):
    """A context for each turn."""

    tells_words = True

    def path(self, voice: str) -> str:
        asked = f"output_format=pcm_{SAMPLE_RATE}&sync_alignment=true"
        return f"/v1/text-to-speech/{quote(voice, safe='')}/multi-stream-input?{asked}"

    def headers(self, key: str) -> dict[str, str]:
        return {"xi-api-key": key}

    def begin(self, turn: str, voice: str, model: str) -> list[Event]:
        return [self.text(turn, " ")]

    def text(self, turn: str, piece: str) -> Event:
        return {"context_id": turn, "text": piece}

    def end(self, turn: str) -> list[Event]:
        return [self.text(turn, "") | {"flush": True}, self.cancel(turn)]

    def cancel(self, turn: str) -> Event:
        return {"context_id": turn, "close_context": True}

    def turn_of(self, event: Event) -> str | None:
        return event.get("contextId")

    def hear_event(self, event: Event) -> Heard:
        audio = base64.b64decode(event.get("audio") or "")
        times = event.get("alignment") or {"chars": (), "charStartTimesMs": ()}
        starts = zip(times["chars"], times["charStartTimesMs"], strict=True)
        ends = tuple(start / 1000 for character, start in starts if character == " ")
        return Heard(audio, event.get("isFinal") is True, event.get("message", ""), ends)


class Cartesia(Dialect):
    """A context for each turn, described anew with each piece."""

    tells_words = True

    def __init__(self) -> None:
        self._asked: Event = {}

    def path(self, voice: str) -> str:
        return "/tts/websocket?cartesia_version=2025-04-16"

    def headers(self, key: str) -> dict[str, str]:
        return {"X-API-Key": key}

    def begin(self, turn: str, voice: str, model: str) -> list[Event]:
        output = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": SAMPLE_RATE}
        self._asked = {"model_id": model, "voice": {"mode": "id", "id": voice}}
        self._asked |= {"output_format": output, "add_timestamps": True}
        return []

    def text(self, turn: str, piece: str) -> Event:
        return self._asked | {"context_id": turn, "transcript": piece, "continue": True}

    def end(self, turn: str) -> list[Event]:
        return [self.text(turn, "") | {"continue": False}]

    def cancel(self, turn: str) -> Event:
        return {"context_id": turn, "cancel": True}

    def turn_of(self, event: Event) -> str | None:
        return event.get("context_id")

    def hear_event(self, event: Event) -> Heard:
        audio = base64.b64decode(event.get("data", ""))
        error = event["message"] if event["type"] == "error" else ""
        ends = tuple(event.get("word_timestamps", {}).get("end", ()))
        return Heard(audio, event["type"] == "done", error, ends)


class Deepgram(Dialect):
    """The voice is in the address; one text after the other."""

    over_by_cancel = "Cleared"

    def path(self, voice: str) -> str:
        asked = f"encoding=linear16&sample_rate={SAMPLE_RATE}"
        return f"/v1/speak?model={quote(voice, safe='')}&{asked}"

    def headers(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Token {key}"}

    def begin(self, turn: str, voice: str, model: str) -> list[Event]:
        return []

    def text(self, turn: str, piece: str) -> Event:
        return {"type": "Speak", "text": piece}

    def end(self, turn: str) -> list[Event]:
        return [{"type": "Flush"}]

    def cancel(self, turn: str) -> Event:
        return {"type": "Clear"}

    def hear_event(self, event: Event) -> Heard:
        error = event["description"] if event["type"] == "Error" else ""
        return Heard(over=event["type"] in ("Flushed", "Cleared"), error=error)


class Omni(Dialect):
    """vLLM-Omni's and SGLang-Omni's, which can't be interrupted but by closing the connection."""

    def path(self, voice: str) -> str:
        return "/v1/audio/speech/stream"

    def begin(self, turn: str, voice: str, model: str) -> list[Event]:
        asked = {"model": model, "voice": voice, "response_format": "pcm", "stream_audio": True}
        return [{"type": "session.config", **asked}]

    def text(self, turn: str, piece: str) -> Event:
        return {"type": "input.text", "text": piece}

    def end(self, turn: str) -> list[Event]:
        return [{"type": "input.done"}]

    def cancel(self, turn: str) -> None:
        return None

    def hear_event(self, event: Event) -> Heard:
        error = event["message"] if event["type"] == "error" else ""
        return Heard(over=event["type"] == "session.done", error=error)


DIALECTS: dict[str, type[Dialect]] = {
    "ours": Ours,
    "contexts": OursInContexts,
    "dashscope": DashScope,
    "elevenlabs": ElevenLabs,
    "cartesia": Cartesia,
    "deepgram": Deepgram,
    "omni": Omni,
}
