"""One request as its client measured it: when bytes came, and why they stopped."""

from __future__ import annotations

from dataclasses import dataclass

from cosyserve.bench.playback import Arrival, chunk_times, heard_at, worst_underrun


@dataclass(frozen=True)
class Failure:
    """Why a request was not served."""

    kind: str  # 'HTTP <status>', 'refused', 'timeout', 'cut off', 'empty', or an error's own name
    detail: str


@dataclass(frozen=True)
class Sample:
    """A request. The properties are defined where it was served: `failure` is None."""

    id: str
    sent: float  # seconds after the client began
    total: float  # seconds from sending to the end of the answer
    arrivals: tuple[Arrival, ...]
    failure: Failure | None = None
    leading_silence: float | None = None  # seconds of audio that are silent; None: all of it

    @property
    def first_audio(self) -> float:
        return self.arrivals[0].at

    @property
    def first_audible(self) -> float | None:
        """When a player that starts with the first piece plays the first audio that is no silence;
        None where there is none."""
        if self.leading_silence is None:
            return None
        return heard_at(self.arrivals, self.leading_silence)

    @property
    def second_chunk(self) -> float | None:
        """Seconds between the first and the second chunk; None where all came as one."""
        times = chunk_times(self.arrivals)
        return times[1] - times[0] if len(times) > 1 else None

    @property
    def audio_seconds(self) -> float:
        return sum(arrival.seconds for arrival in self.arrivals)

    @property
    def rtf(self) -> float:
        return self.total / self.audio_seconds

    @property
    def underrun(self) -> float:
        return worst_underrun(self.arrivals)
