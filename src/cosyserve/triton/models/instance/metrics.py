"""Numbers of a model in the server's metrics, beside Triton's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton_python_backend_utils as pb


class ModelMetrics:
    """Each call waits for the server; a number is sent when it has changed."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._families: list[Any] = []  # a metric is gone with its family
        self._metrics: dict[str, Any] = {}
        self._shown: dict[str, float] = {}

    def show(self, held: Mapping[str, int], totals: Mapping[str, float]) -> None:
        """`held`: what rises and falls; `totals`: what only grows."""
        for name, value in held.items():
            if self._shown.get(name) != value:
                self._metric(name, pb.MetricFamily.GAUGE, "held by a model").set(value)
        for name, total in totals.items():
            if grown := total - self._shown.get(name, 0.0):
                self._metric(name, pb.MetricFamily.COUNTER, "of a model").increment(grown)
        self._shown = {**held, **totals}

    def _metric(self, name: str, kind: Any, of: str) -> Any:
        if name not in self._metrics:
            family = pb.MetricFamily(
                name=f"cosyserve_{name}", description=f"{name.replace('_', ' ')} {of}", kind=kind
            )
            self._families.append(family)
            self._metrics[name] = family.Metric(labels={"model": self._model})
        return self._metrics[name]
