"""The figures of a run, computed from its samples.

Times are in seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from cosyserve.bench.sample import Sample
from cosyserve.bench.statistics import Distribution, distribution, share_within


@dataclass(frozen=True)
class Figures:
    """A figure that could not be measured is None. All but `failures` are of served requests."""

    requests: int
    served: int
    failures: dict[str, int]  # by kind
    wall_seconds: float  # from the first request sent to the last answer ended
    audio_seconds: float
    audio_per_second: float | None
    rtf: float | None  # wall time / audio
    first_audio: Distribution | None
    second_chunk: Distribution | None
    total: Distribution | None
    request_rtf: Distribution | None
    underrun: Distribution | None  # the worst one of each stream
    c50: float | None  # share of streams that never starve for more than 50 ms
    c100: float | None
    c200: float | None
    first_audible: Distribution | None = None  # not in reports of earlier versions


def figures(samples: Sequence[Sample]) -> Figures:
    served = [sample for sample in samples if sample.failure is None]
    failures = Counter(sample.failure.kind for sample in samples if sample.failure)
    ends = [sample.sent + sample.total for sample in samples]
    wall = max(ends) - min(sample.sent for sample in samples) if samples else 0.0
    audio = sum(sample.audio_seconds for sample in served)
    underruns = [sample.underrun for sample in served]
    return Figures(
        requests=len(samples),
        served=len(served),
        failures=dict(failures.most_common()),
        wall_seconds=wall,
        audio_seconds=audio,
        audio_per_second=audio / wall if wall else None,
        rtf=wall / audio if audio else None,
        first_audio=distribution([sample.first_audio for sample in served]),
        second_chunk=distribution(
            [gap for sample in served if (gap := sample.second_chunk) is not None]
        ),
        total=distribution([sample.total for sample in served]),
        request_rtf=distribution([sample.rtf for sample in served]),
        underrun=distribution(underruns),
        c50=share_within(underruns, 0.050),
        c100=share_within(underruns, 0.100),
        c200=share_within(underruns, 0.200),
        first_audible=distribution(
            [at for sample in served if (at := sample.first_audible) is not None]
        ),
    )
