"""The panels of the Grafana dashboard as one picture, with the data of a Prometheus server.

    python -m benchmarks.dashboard http://localhost:9090 dashboard.png --minutes 5

Every query of the dashboard is asked as Grafana would ask it, so that one that Prometheus does not
understand is found here, too.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import httpx
import matplotlib.pyplot as plt

POINTS = 150
COLUMNS = 3
RATE_INTERVAL = "15s"  # Grafana takes four scrapes
FORMATS = {"percentunit": lambda value, _: f"{100 * value:.0f} %"}


def ask(url: str, query: str, start: float, end: float) -> list[dict[str, Any]]:
    variables = {"$__rate_interval": RATE_INTERVAL, "$model": ".*", "$instance": ".*"}
    for name, value in variables.items():
        query = query.replace(name, value)
    step = max(1, round((end - start) / POINTS))
    window = {"start": start, "end": end, "step": step}
    answer = httpx.get(f"{url}/api/v1/query_range", params={"query": query, **window}).json()
    if answer["status"] != "success":
        raise SystemExit(f"{query}: {answer['error']}")
    series: list[dict[str, Any]] = answer["data"]["result"]
    return series


def legend(form: str, labels: dict[str, str]) -> str:
    for name, value in labels.items():
        form = form.replace(f"{{{{{name}}}}}", value)
    return form


def draw(axes: Any, panel: dict[str, Any], url: str, start: float, end: float) -> None:
    for target in panel["targets"]:
        for one in ask(url, target["expr"], start, end):
            points = [(float(at) - start, float(value)) for at, value in one["values"]]
            label = legend(target["legendFormat"], one["metric"])
            axes.plot(*zip(*points, strict=True), linewidth=1.2, label=label)
    unit = panel["fieldConfig"]["defaults"]["unit"]
    axes.set_title(f"{panel['title']} [s]" if unit == "s" else panel["title"], fontsize=9)
    axes.set_xlim(0, end - start)
    axes.set_ylim(bottom=0)
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.3)
    if unit in FORMATS:
        axes.yaxis.set_major_formatter(FORMATS[unit])
    if axes.lines:
        axes.legend(fontsize=6, loc="upper left")
    else:
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center", color="grey")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("prometheus", help="its address")
    parser.add_argument("picture", type=Path)
    parser.add_argument("--minutes", type=float, default=5.0, help="back from now")
    options = parser.parse_args()
    file = files("cosyserve.deploy") / "observability" / "cosyserve-dashboard.json"
    panels = json.loads(file.read_text("utf-8"))["panels"]
    end = time.time()
    rows = math.ceil(len(panels) / COLUMNS)
    figure, grid = plt.subplots(rows, COLUMNS, figsize=(12, 2.1 * rows), layout="constrained")
    for panel, axes in zip(panels, grid.flat, strict=False):
        draw(axes, panel, options.prometheus, end - 60 * options.minutes, end)
    figure.supxlabel("seconds", fontsize=8)
    figure.savefig(options.picture, dpi=80)


if __name__ == "__main__":
    main()
