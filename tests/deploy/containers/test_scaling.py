"""What the number of servers follows: KEDA's query and the rule that the page has for an HPA."""

from __future__ import annotations

import re
import shutil
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from cosyserve.deploy.containers.helm import write_chart
from cosyserve.deploy.containers.stack import Stack
from cosyserve.gateway.telemetry.metrics import Metrics
from cosyserve.gateway.telemetry.record import Record
from tests.deploy.containers.charts import manifests, named
from tests.gateway.sine_engine import SineEngine

PROMTOOL = shutil.which("promtool")
PAGE = Path(__file__).parents[3] / "docs" / "kubernetes.md"
OURS = {"namespace": "speech", "service": "tts-cosyserve"}
SPOKEN = {"route": "/v1/audio/speech", "status": "200"}


@pytest.fixture(scope="module")
def queries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """By the labels of their answers."""
    chart = tmp_path_factory.mktemp("scaling") / "chart"
    write_chart(Stack.of(["gpus=4", "autoscaling=keda"]), chart)
    scaled = named(manifests(chart), "ScaledObject", "tts-cosyserve-engine")["spec"]
    (trigger,) = scaled["triggers"]
    assert (trigger["metricType"], trigger["metadata"]["threshold"]) == ("AverageValue", "0.7")
    return {"{}": trigger["metadata"]["query"], '{service="tts-cosyserve"}': adapters_query()}


def adapters_query() -> str:
    """As Prometheus Adapter fills it in when it is asked for the metric of our Service."""
    block = re.search(r"^    rules:\n(?:    .*\n)+", PAGE.read_text("utf-8"), re.MULTILINE)
    assert block
    (rule,) = yaml.safe_load(textwrap.dedent(block[0]))["rules"]["custom"]
    query: str = rule["metricsQuery"]
    matchers = ",".join(f'{label}="{value}"' for label, value in OURS.items())
    query = query.replace("<<.Series>>", rule["seriesQuery"].partition("{")[0])
    return query.replace("<<.LabelMatchers>>", matchers).replace("<<.GroupBy>>", "service")


def test_the_page_and_the_chart_call_it_the_same(tmp_path: Path) -> None:
    write_chart(Stack.of(["gpus=4", "autoscaling=hpa"]), tmp_path / "chart")
    scaled = named(manifests(tmp_path / "chart"), "HorizontalPodAutoscaler", "tts-cosyserve-engine")
    (metric,) = scaled["spec"]["metrics"]
    assert metric["object"]["describedObject"]["name"] == OURS["service"]
    assert f"as: {metric['object']['metric']['name']}}}" in PAGE.read_text("utf-8")
    assert metric["object"]["target"] == {"type": "AverageValue", "averageValue": "0.7"}


def test_they_ask_for_metrics_that_exist(queries: dict[str, str]) -> None:
    metrics = Metrics([SineEngine()])
    metrics.observe(Record("id", "POST", "/v1/audio/speech", False), "/v1/audio/speech", 1.0)
    metrics.count_refusal("overloaded")
    known = set(re.findall(r"^(\w+)[ {]", metrics.text().decode(), re.MULTILINE))
    for query in queries.values():
        asked = set(re.findall(r"cosyserve_\w+", query))
        assert {"cosyserve_running", "cosyserve_slots", "cosyserve_refusals_total"} < asked <= known


def series(name: str, values: str, **labels: str) -> dict[str, str]:
    inside = ",".join(f'{key}="{value}"' for key, value in (OURS | labels).items())
    return {"series": f"{name}{{{inside}}}", "values": values}


CASES: dict[str, tuple[float, list[dict[str, str]]]] = {
    "two servers, half of their slots in use": (
        1.0,
        [
            series("cosyserve_running", "10x40", pod="a"),
            series("cosyserve_running", "6x40", pod="b"),
            series("cosyserve_slots", "16x40", pod="a"),
            series("cosyserve_slots", "16x40", pod="b"),
        ],
    ),
    "a server that is full and refuses as much as it takes": (
        2.0,
        [
            series("cosyserve_running", "16x40"),
            series("cosyserve_slots", "16x40"),
            # 1.6 a second, of 10 s each
            series("cosyserve_refusals_total", "0+24x40", reason="overloaded"),
            series("cosyserve_refusals_total", "0+900x40", reason="invalid_value"),
            series("cosyserve_request_seconds_sum", "0+240x40", **SPOKEN),
            series("cosyserve_request_seconds_count", "0+24x40", **SPOKEN),
        ],
    ),
    "Triton servers, which do not tell their slots": (
        0.5,
        [series("cosyserve_running", "32x40")],
    ),
    "a server that has just started and has no slots yet": (
        0.0,
        [series("cosyserve_running", "0x40"), series("cosyserve_slots", "0x40")],
    ),
}


@pytest.mark.skipif(not PROMTOOL, reason="promtool is Debian's package prometheus")
def test_they_count_the_servers_that_are_needed(queries: dict[str, str], tmp_path: Path) -> None:
    others = [
        series("cosyserve_running", "500x40", service="other"),
        series("cosyserve_slots", "999x40", service="other"),
    ]
    tests: list[dict[str, Any]] = [
        {
            "name": name,
            "interval": "15s",
            "input_series": [*given, *others],
            "promql_expr_test": [
                {
                    "expr": f"round({query}, 0.001)",
                    "eval_time": "9m",
                    "exp_samples": [{"labels": labels, "value": needed}],
                }
                for labels, query in queries.items()
            ],
        }
        for name, (needed, given) in CASES.items()
    ]
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({"tests": tests}))
    words = [str(PROMTOOL), "test", "rules", str(file)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
