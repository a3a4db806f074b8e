"""A plan for so many listeners on so many GPUs, or the reason why there is none."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from cosyserve.deploy.plan.figures import FIGURES, Figure
from cosyserve.deploy.stages.deployment import LLM, Flow
from cosyserve.errors import InputError


@dataclass(frozen=True)
class Demand:
    """What is asked of a set of GPUs."""

    gpus: int
    gpu: str
    flow: Flow
    llm: LLM
    streams: int
    first_audio_ms: float


@dataclass(frozen=True)
class Plan:
    """So many equal sets of GPUs, each as the figure was measured on."""

    demand: Demand
    figure: Figure
    sets: int

    @property
    def gpus(self) -> int:
        return self.sets * self.figure.layout.gpus

    @property
    def capacity(self) -> int:
        return self.sets * self.figure.streams


def plan(demand: Demand, figures: Iterable[Figure] = FIGURES) -> Plan:
    """The plan with the fewest GPUs, and of those with the soonest audio."""
    measured = [
        f for f in figures if (f.gpu, f.flow, f.llm) == (demand.gpu, demand.flow, demand.llm)
    ]
    if not measured:
        raise InputError(_unmeasured(demand, figures))
    soon = [figure for figure in measured if figure.first_audio_ms <= demand.first_audio_ms]
    if not soon:
        best = min(measured, key=lambda figure: figure.first_audio_ms)
        raise InputError(
            f"first audio after {demand.first_audio_ms:g} ms was never measured on {demand.gpu} "
            f"with {demand.flow}: the soonest was {_said(best)}; give --first-audio-ms more"
        )
    plans = [Plan(demand, f, math.ceil(demand.streams / f.streams)) for f in soon]
    chosen = min(plans, key=lambda plan: (plan.gpus, plan.figure.first_audio_ms))
    if chosen.gpus > demand.gpus:
        raise InputError(_too_few(demand, soon, chosen))
    return chosen


def _too_few(demand: Demand, soon: Iterable[Figure], chosen: Plan) -> str:
    fits = [f for f in soon if f.layout.gpus <= demand.gpus]
    best = max((demand.gpus // f.layout.gpus * f.streams for f in fits), default=0)
    return (
        f"{demand.gpus} {demand.gpu} serve at most {best} streams with first audio within "
        f"{demand.first_audio_ms:g} ms, {demand.streams} are asked for: that takes {chosen.gpus} "
        f"GPUs ({_said(chosen.figure)} on a set of {chosen.figure.layout.gpus}); give more --gpus, "
        "a longer --first-audio-ms or fewer --streams"
    )


def _unmeasured(demand: Demand, figures: Iterable[Figure]) -> str:
    known = sorted({f"--gpu {f.gpu} --flow {f.flow} --llm {f.llm}" for f in figures})
    return (
        f"nobody has measured --gpu {demand.gpu} --flow {demand.flow} --llm {demand.llm}, and "
        f"figures of other GPUs say little about it; known: {'; '.join(known)}. Serve on one such "
        "GPU and measure it with `cosyserve bench load`"
    )


def _said(figure: Figure) -> str:
    return f"{figure.first_audio_ms:g} ms ({figure.statistic}) for {figure.streams} streams"
