"""What the protocols of text in pieces share: turns, and what a server's messages say of them."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

Event = dict[str, Any]


@dataclass(frozen=True)
class Heard:
    """What a message of a server says."""

    audio: bytes = b""
    over: bool = False  # the text is spoken, or was cancelled
    error: str = ""
    word_ends: tuple[float, ...] = ()  # seconds of the text's speech
    spoken: int | None = None  # words that were heard, where it is told at the end


NOTHING = Heard()


class Dialect(ABC):
    """A turn is a text with a name of its own. Messages are JSON; audio may also be bare."""

    tells_words = False  # whether it has times of words
    over_by_cancel = ""  # the type of the event that answers a cancel, where it is always answered

    @abstractmethod
    def path(self, voice: str) -> str: ...

    def headers(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"}

    @abstractmethod
    def begin(self, turn: str, voice: str, model: str) -> list[Event]: ...

    @abstractmethod
    def text(self, turn: str, piece: str) -> Event: ...

    @abstractmethod
    def end(self, turn: str) -> list[Event]: ...

    @abstractmethod
    def cancel(self, turn: str) -> Event | None:
        """None: there is no such message."""

    @abstractmethod
    def hear_event(self, event: Event) -> Heard: ...

    def audio_of(self, frame: bytes, turn: str) -> bytes:
        """The audio of the turn in a frame without JSON."""
        return frame

    def turn_of(self, event: Event) -> str | None:
        """The turn that an event is about; None: it doesn't say."""
        return None

    def hear(self, message: str | bytes, turn: str, *, cancelled: bool) -> Heard:
        """What a message says of this turn, which may have been cancelled."""
        if isinstance(message, bytes):
            return Heard(audio=self.audio_of(message, turn))
        event = json.loads(message)
        if self.turn_of(event) not in (None, turn):
            return NOTHING  # of a cancel that came too late
        heard = self.hear_event(event)
        if heard.over and cancelled and self.over_by_cancel not in ("", event.get("type")):
            return NOTHING
        return heard
