"""Prometheus rules and the Grafana dashboard: they ask for what exists, and alarm in time."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import defaultdict
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from cosyserve.contracts import EngineStats, Timeline
from cosyserve.gateway.telemetry.metrics import Metrics
from cosyserve.gateway.telemetry.record import Record
from tests.gateway.sine_engine import SineEngine

FOLDER = files("cosyserve.deploy") / "observability"
RULES = (FOLDER / "cosyserve-rules.yaml").read_text("utf-8")
DASHBOARD = json.loads((FOLDER / "cosyserve-dashboard.json").read_text("utf-8"))
OF_THE_TARGET = {"instance", "job"}  # labels that Prometheus adds

Rule = dict[str, Any]


def rules(kind: str) -> list[Rule]:
    return [r for group in yaml.safe_load(RULES)["groups"] for r in group["rules"] if kind in r]


def expressions() -> dict[str, str]:
    asked = {rule.get("record") or rule["alert"]: rule["expr"] for rule in rules("expr")}
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            asked[f"panel {panel['title']} {target['refId']}"] = target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if "definition" in variable:
            asked[f"variable {variable['name']}"] = variable["definition"]
    return asked


@pytest.fixture(scope="module")
def known() -> dict[str, dict[str, set[str]]]:
    """The labels of every metric of a server, with their values."""

    class Engine(SineEngine):
        def stats(self) -> EngineStats:
            return EngineStats(True, 0, 0, slots=8, gpu_memory={"cuda:0": 1})

    metrics = Metrics([Engine()])
    spoken = Record("id", "POST", "/", status=200, first_audio=0.1, audio_seconds=2.0)
    spoken.speaking_seconds, spoken.timeline = 1.0, Timeline(0.0, 0.0, 0.1, 0.2, 0.3)
    metrics.observe(spoken, "/", 1.0)
    for reason in ("client_left", "cancelled", "engine_failed"):
        metrics.observe(Record("id", "POST", "/", abort=reason), "/", 1.0)
    for reason in ("overloaded", "too_many_requests"):
        metrics.count_refusal(reason)
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            for label, value in sample.labels.items():
                found[sample.name][label].add(value)
    return found


@pytest.mark.parametrize("place", expressions())
def test_only_what_exists_is_asked_for(place: str, known: dict[str, dict[str, set[str]]]) -> None:
    expression = expressions()[place]
    recorded = {rule["record"] for rule in rules("record")}
    assert set(re.findall(r"cosyserve:[\w:]+", expression)) <= recorded
    metrics = re.findall(r"\b(cosyserve_\w+)(?:\{([^}]*)\})?", expression)
    assert metrics or "cosyserve:" in expression
    labels: set[str] = set(OF_THE_TARGET)
    for name, matchers in metrics:
        assert name in known
        labels |= known[name].keys()
        for label, how, value in re.findall(r'(\w+)(=~|!~|!=|=)"([^"]*)"', matchers):
            assert label in known[name].keys() | OF_THE_TARGET
            wanted = set() if value.startswith("$") else set(value.split("|"))
            assert wanted <= known[name][label], f"{label}{how} has no such value"
    for grouped in re.findall(r"by \(([^)]*)\)", expression):
        assert {label.strip() for label in grouped.split(",")} <= labels


def test_every_panel_has_its_place_and_says_what_it_shows() -> None:
    panels = DASHBOARD["panels"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells)), "panels cover each other"
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["description"] and panel["targets"] for panel in panels)
    assert "${datasource}" in {panel["datasource"]["uid"] for panel in panels}


def test_every_alert_says_what_to_do() -> None:
    for rule in rules("alert"):
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"].keys() == {"summary", "action"}


def series(name: str, values: str, **labels: str) -> dict[str, str]:
    inside = ",".join(f'{key}="{value}"' for key, value in {"model": "m", **labels}.items())
    return {"series": f"{name}{{{inside}}}", "values": values}


def firing(alert: str, at: str, *labels: dict[str, str]) -> dict[str, Any]:
    (rule,) = (rule for rule in rules("alert") if rule["alert"] == alert)
    return {
        "eval_time": at,
        "alertname": alert,
        "exp_alerts": [{"exp_labels": {**rule["labels"], **one}} for one in labels],
    }


def recorded(name: str, at: str, value: float | None) -> dict[str, Any]:
    samples = [] if value is None else [{"labels": '{model="m"}', "value": value}]
    return {"eval_time": at, "expr": f"round({name}, 0.0001)", "exp_samples": samples}


M = {"model": "m"}
CASES: dict[str, dict[str, Any]] = {
    "overload, and faults of clients that are none": {
        "input_series": [
            series("cosyserve_refusals_total", "0+30x30", reason="overloaded"),
            series("cosyserve_refusals_total", "0+900x30", reason="invalid_value"),
        ],
        "alert_rule_test": [
            firing("CosyserveOverloaded", "4m"),
            firing("CosyserveOverloaded", "20m", M),
        ],
        "promql_expr_test": [recorded("cosyserve:overloaded:rate", "20m", 0.5)],
    },
    "a server that is not ready": {
        "input_series": [series("cosyserve_ready", "1 0 0 0 0 1", instance="a")],
        "alert_rule_test": [
            firing("CosyserveNotReady", "2m"),
            firing("CosyserveNotReady", "4m", {**M, "instance": "a"}),
            firing("CosyserveNotReady", "5m"),
        ],
    },
    "no server at all": {
        "input_series": [series("cosyserve_ready", "1 1 stale", instance="a")],
        "alert_rule_test": [
            firing("CosyserveGone", "6m"),
            firing("CosyserveGone", "8m", {}),
        ],
    },
    "one server that does not answer, and other targets that do not": {
        "input_series": [
            series("cosyserve_ready", "1 1 stale", job="tts", instance="a"),
            series("cosyserve_ready", "1x9", job="tts", instance="b"),
            {"series": 'up{job="tts",instance="a"}', "values": "1 1 0 0 0 0 0 stale"},
            {"series": 'up{job="tts",instance="b"}', "values": "1x9"},
            {"series": 'up{job="other",instance="a"}', "values": "0x9"},
        ],
        "alert_rule_test": [
            firing("CosyserveUnreachable", "3m"),
            firing("CosyserveUnreachable", "5m", {"job": "tts", "instance": "a"}),
            firing("CosyserveUnreachable", "8m"),
            firing("CosyserveGone", "9m"),
        ],
    },
    "workers that die again and again": {
        "input_series": [
            series("cosyserve_worker_restarts_total", "0 0 1 1 1 2 3 3 3 3 3", instance="a"),
            series("cosyserve_worker_restarts_total", "5 5 5 5 5 5 5 5 5 5 5", instance="b"),
        ],
        "alert_rule_test": [
            firing("CosyserveWorkersDie", "3m"),
            firing("CosyserveWorkersDie", "10m", {**M, "instance": "a"}),
        ],
    },
    "slots of two servers": {
        "input_series": [
            series("cosyserve_running", "8x30", instance="a"),
            series("cosyserve_running", "7x30", instance="b"),
            series("cosyserve_slots", "8x30", instance="a"),
            series("cosyserve_slots", "8x30", instance="b"),
        ],
        "alert_rule_test": [
            firing("CosyserveSlotsFull", "5m"),
            firing("CosyserveSlotsFull", "15m", M),
        ],
        "promql_expr_test": [recorded("cosyserve:slots_in_use:ratio", "5m", 0.9375)],
    },
    "no slots at all are no infinite use": {
        "input_series": [series("cosyserve_running", "0x9"), series("cosyserve_slots", "0x9")],
        "promql_expr_test": [recorded("cosyserve:slots_in_use:ratio", "5m", None)],
    },
    "first audio": {
        "input_series": [
            series("cosyserve_first_audio_seconds_bucket", "0+50x30", le="0.1"),
            series("cosyserve_first_audio_seconds_bucket", "0+90x30", le="1.0"),
            series("cosyserve_first_audio_seconds_bucket", "0+100x30", le="2.0"),
            series("cosyserve_first_audio_seconds_bucket", "0+100x30", le="+Inf"),
        ],
        "alert_rule_test": [firing("CosyserveFirstAudioSlow", "15m", M)],
        "promql_expr_test": [
            recorded("cosyserve:first_audio_seconds:p50", "10m", 0.1),
            recorded("cosyserve:first_audio_seconds:p95", "10m", 1.5),
        ],
    },
    "silence": {
        "input_series": [
            series("cosyserve_underrun_seconds_bucket", "0+96x30", le="0.1"),
            series("cosyserve_underrun_seconds_count", "0+128x30"),
        ],
        "alert_rule_test": [firing("CosyserveUnderruns", "15m", M)],
        "promql_expr_test": [recorded("cosyserve:streams_with_silence:ratio", "10m", 0.25)],
    },
    "listeners who leave are no failure": {
        "input_series": [series("cosyserve_aborts_total", "0+600x30", reason="client_left")],
        "alert_rule_test": [firing("CosyserveStreamsFail", "15m")],
    },
    "streams that fail": {
        "input_series": [series("cosyserve_aborts_total", "0+6x30", reason="engine_failed")],
        "alert_rule_test": [firing("CosyserveStreamsFail", "15m", M)],
    },
}


@pytest.mark.server
@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is Debian's package prometheus")
def test_rules_record_and_alarm_as_promtool_sees_them(tmp_path: Path) -> None:
    assert {r["alert"] for r in rules("alert")} == {
        check["alertname"]
        for case in CASES.values()
        for check in case.get("alert_rule_test", [])
        if check["exp_alerts"]
    }
    (tmp_path / "rules.yaml").write_text(re.sub(r"(?m)^ *annotations:\n( {10}.*\n)+", "", RULES))
    tests = [{"interval": "1m", "name": name, **case} for name, case in CASES.items()]
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": tests}))
    subprocess.run(["promtool", "check", "rules", str(FOLDER / "cosyserve-rules.yaml")], check=True)
    answer = subprocess.run(
        ["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
