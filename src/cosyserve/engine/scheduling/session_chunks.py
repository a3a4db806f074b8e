"""Chunks of sessions on several token2wavs, one on each device: a session stays where it began."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from cosyserve.contracts import Floats
from cosyserve.engine.scheduling.chunks import Chunks, Token2WavLike
from cosyserve.engine.scheduling.session import Session


def by_name(token2wavs: Sequence[Token2WavLike]) -> dict[str, Token2WavLike]:
    """By what each is called in the log."""
    names = ("token2wav", *(f"token2wav {n + 1}" for n in range(1, len(token2wavs))))
    return dict(zip(names, token2wavs, strict=True))


class SessionChunks:
    def __init__(self, token2wavs: Sequence[Token2WavLike], clock: Callable[[], float]) -> None:
        self._devices: list[Chunks[Session]] = [Chunks(one, clock) for one in token2wavs]

    def __bool__(self) -> bool:
        """Whether any are being computed."""
        return any(self._devices)

    @property
    def begun(self) -> float | None:
        """When the oldest of them was; None: there are none."""
        return min((one.begun for one in self._devices if one.begun is not None), default=None)

    @property
    def seconds(self) -> float:
        """Spent computing, by all devices together."""
        return sum(chunks.seconds for chunks in self._devices)

    @property
    def token2wavs(self) -> Mapping[str, Token2WavLike]:
        return by_name([chunks.token2wav for chunks in self._devices])

    def least_loaded(self, sessions: Iterable[Session]) -> int:
        """The device with the fewest of these sessions."""
        counts = Counter(session.device for session in sessions)
        return min(range(len(self._devices)), key=lambda device: counts[device])

    def is_due(self, session: Session, now: float) -> bool:
        """Whether nothing is gained by waiting for more of its tokens."""
        return self._devices[session.device].is_due(session, now)

    def choose(self, ready: Sequence[Session], *, streaming: bool) -> list[Session]:
        """As of `Chunks`."""
        for device, chunks in enumerate(self._devices):
            mine = (session for session in ready if session.device == device)
            if chosen := chunks.choose(mine, streaming=streaming):
                return chosen
        return []

    def start(self, sessions: Sequence[Session]) -> None:
        self._devices[sessions[0].device].start(sessions)

    def finished(self) -> list[tuple[Session, Floats | Exception]]:
        """What has come out since the last call; each session has its new state."""
        return [result for chunks in self._devices for result in chunks.finished()]
