"""A run as a picture: how latencies are spread, and how they went over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cosyserve.bench.report.report import Report
from cosyserve.bench.sample import Sample
from cosyserve.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def write_plot(report: Report, path: Path) -> None:
    """Writes a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    served = [sample for sample in report.samples if sample.failure is None]
    failed = [sample for sample in report.samples if sample.failure]
    figure = Figure(figsize=(12, 5), layout="constrained")
    FigureCanvasAgg(figure)
    spread, timeline = figure.subplots(1, 2)
    _draw_spread(spread, served)
    _draw_timeline(timeline, served, failed)
    try:
        figure.savefig(path, format="png", dpi=120)
    except OSError as error:
        raise InputError(f"{path} can't be written: {error.strerror}") from error


def _draw_spread(axes: Axes, served: Sequence[Sample]) -> None:
    gaps = [gap for sample in served if (gap := sample.second_chunk) is not None]
    for label, values in (
        ("first audio", [sample.first_audio for sample in served]),
        ("second chunk − first", gaps),
        ("total", [sample.total for sample in served]),
    ):
        if values:
            axes.ecdf(1000 * np.asarray(values), label=f"{label} ({len(values)})")
    axes.set(title="Latency", xlabel="ms", ylabel="share of requests", xscale="log")
    axes.grid(alpha=0.3)
    if served:
        axes.legend()


def _draw_timeline(axes: Axes, served: Sequence[Sample], failed: Sequence[Sample]) -> None:
    axes.plot(
        [sample.sent for sample in served],
        [1000 * sample.first_audio for sample in served],
        linestyle="none",
        marker="o",
        markersize=4,
        label=f"first audio ({len(served)})",
    )
    axes.plot(
        [sample.sent for sample in failed],
        [1000 * sample.total for sample in failed],
        linestyle="none",
        marker="x",
        color="red",
        label=f"failed ({len(failed)})",
    )
    axes.set(title="Requests as they were sent", xlabel="sent (s)", ylabel="ms until answered")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
