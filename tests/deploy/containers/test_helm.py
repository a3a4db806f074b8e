"""The chart, with a real helm, against the schemas of two versions of Kubernetes."""

from __future__ import annotations

import functools
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cosyserve.deploy.containers.helm import values_file, write_chart
from cosyserve.deploy.containers.kserve import inference_service
from cosyserve.deploy.containers.stack import Stack
from cosyserve.errors import InputError
from tests.deploy.containers.charts import helm, manifests, named, pods

VERSIONS = ("1.29", "1.35")
# Of others' resources there are no schemas.
OTHERS = {"ScaledObject", "ServiceMonitor", "PrometheusRule"}
TRTLLM = ("llm=trtllm", "model=native", "engine=trt", "tokenizer=lm", "claim=models")
STACKS = {
    "server": (),
    "cpu": ("gpus=0", "replicas=2", "keys=false", "address=127.0.0.1"),
    "keda": ("gpus=4", "autoscaling=keda", "redis=true", "host=tts.example.org"),
    "hpa": ("gpus=4", "autoscaling=hpa", "model=native", "claim=models"),
    "triton": ("layout=triton", "gpus=2", "replicas=2", "model=native", "claim=models"),
    "tensorrt-llm": ("layout=triton", "gpus=2", "autoscaling=keda", "redis=true", *TRTLLM),
    "disaggregated": ("layout=disaggregated", "gpus=4", "flow=dit", *TRTLLM),
    "disaggregated-ours": ("layout=disaggregated", "gpus=4", "autoscaling=hpa", "redis=true"),
}


@pytest.fixture(scope="module")
def charts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("charts")
    for name, pairs in STACKS.items():
        write_chart(Stack.of(pairs), folder / name)
    return {name: folder / name for name in STACKS}


@pytest.fixture(scope="module")
def rendered(charts: dict[str, Path]) -> dict[str, list[dict[str, Any]]]:
    return {name: manifests(chart) for name, chart in charts.items()}


def kinds(parts: list[dict[str, Any]]) -> set[str]:
    return {part["kind"] for part in parts}


def test_the_charts_own_values_are_the_default() -> None:
    chart = Path(sys.modules[write_chart.__module__].__file__ or "").parent / "chart"
    assert (chart / "values.yaml").read_text("utf-8") == values_file(Stack())


def test_helm_has_no_complaint(charts: dict[str, Path]) -> None:
    done = helm("lint", "--strict", *map(str, charts.values()))
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def validate() -> Iterator[Callable[..., object]]:
    """Checks a manifest against a version of Kubernetes; its megabytes of schemas are read once."""
    kubernetes = pytest.importorskip(
        "kubernetes_validate", reason="not here: pip install 'cosyserve[containers]'"
    )
    with pytest.MonkeyPatch.context() as patch:
        read = functools.cache(kubernetes.utils.schema_contents)
        patch.setattr(kubernetes.utils, "schema_contents", read)
        yield kubernetes.validate


@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_is_valid(
    rendered: dict[str, list[dict[str, Any]]], validate: Callable[..., object], version: str
) -> None:
    found = set()
    for parts in rendered.values():
        for part in parts:
            if part["kind"] not in OTHERS:
                validate(part, version, strict=True)
                found.add(part["kind"])
    assert {"Deployment", "StatefulSet", "Ingress", "NetworkPolicy"} <= found
    assert {"HorizontalPodAutoscaler", "PodDisruptionBudget", "Service"} <= found


def test_a_pod_may_little_and_ends_in_good_order(
    rendered: dict[str, list[dict[str, Any]]],
) -> None:
    for parts in rendered.values():
        for pod in pods(parts):
            (container,) = pod["containers"]
            assert pod["enableServiceLinks"] is False  # COSYSERVE_PORT of a Service is no number
            assert pod["securityContext"]["runAsNonRoot"]
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            if container["name"] == "redis":
                continue
            startup = container["startupProbe"]
            assert startup["periodSeconds"] * startup["failureThreshold"] >= 120
            assert pod["terminationGracePeriodSeconds"] > 30  # COSYSERVE_SHUTDOWN_SECONDS


def test_the_gateway_knows_every_triton_there_may_be(
    rendered: dict[str, list[dict[str, Any]]],
) -> None:
    parts = rendered["disaggregated"]
    router = named(parts, "Deployment", "tts-cosyserve-router")["spec"]["template"]["spec"]
    servers = ",".join(f"tts-cosyserve-engine-{n}.tts-cosyserve-engine:8001" for n in range(3))
    assert router["containers"][0]["args"][-1] == f"triton://{servers}/cosyvoice2_dit"
    engine = named(parts, "StatefulSet", "tts-cosyserve-engine")["spec"]
    assert engine["serviceName"] == "tts-cosyserve-engine"
    (script,) = engine["template"]["spec"]["containers"][0]["args"]
    assert "llm_url=http://tts-cosyserve-llm:8000/v1" in script


@pytest.mark.parametrize(("name", "component"), [("server", "engine"), ("triton", "router")])
def test_ports_are_what_values_say(charts: dict[str, Path], name: str, component: str) -> None:
    ports = ("servingEngineSpec.containerPort=9000", "servingEngineSpec.metricsPort=9100")
    parts = manifests(charts[name], *ports, release="cosyserve")
    deployment = named(parts, "Deployment", f"cosyserve-{component}")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    env = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert (env["COSYSERVE_PORT"], env["COSYSERVE_METRICS_PORT"]) == ("9000", "9100")
    listening = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert listening == {"http": 9000, "metrics": 9100}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] == "http"
    service = named(parts, "Service", "cosyserve")["spec"]
    assert {port["targetPort"] for port in service["ports"]} == {"http", "metrics"}
    policy = named(parts, "NetworkPolicy", f"cosyserve-{component}")["spec"]
    clients, prometheus = policy["ingress"]
    assert clients == {"ports": [{"port": 9000}]}
    assert prometheus["ports"] == [{"port": 9100}]
    assert prometheus["from"][0]["namespaceSelector"]["matchLabels"]


def test_a_client_keeps_its_pod_only_where_asked_for(charts: dict[str, Path]) -> None:
    value = "routerSpec.sessionAffinitySeconds"
    service = named(manifests(charts["server"]), "Service", "tts-cosyserve")["spec"]
    assert not {"sessionAffinity", "sessionAffinityConfig"} & service.keys()
    parts = manifests(charts["server"], f"{value}=3600")
    service = named(parts, "Service", "tts-cosyserve")["spec"]
    assert service["sessionAffinity"] == "ClientIP"
    assert service["sessionAffinityConfig"] == {"clientIP": {"timeoutSeconds": 3600}}


def test_metrics_are_scraped_without_a_key_where_servers_are_scaled_by_them(
    charts: dict[str, Path], rendered: dict[str, list[dict[str, Any]]]
) -> None:
    watched = {name for name, parts in rendered.items() if "ServiceMonitor" in kinds(parts)}
    assert watched == {"keda", "hpa", "tensorrt-llm", "disaggregated-ours"}
    (endpoint,) = named(rendered["keda"], "ServiceMonitor", "tts-cosyserve")["spec"]["endpoints"]
    assert endpoint == {"port": "metrics", "path": "/metrics", "interval": "15s"}
    parts = manifests(
        charts["tensorrt-llm"], "observability.labels.release=kps", "observability.rules=true"
    )
    for part in parts:
        found = part["metadata"]["labels"].get("release")
        assert (found == "kps") == (part["kind"] in ("ServiceMonitor", "PrometheusRule"))


def test_models_come_from_a_claim(rendered: dict[str, list[dict[str, Any]]]) -> None:
    (pod,) = pods(rendered["hpa"])
    mounts = {mount["mountPath"]: mount for mount in pod["containers"][0]["volumeMounts"]}
    assert mounts["/model"] == {
        "name": "model", "mountPath": "/model", "subPath": "native", "readOnly": True
    }  # fmt: skip
    assert "/model" in pod["containers"][0]["args"]


def test_keys_are_a_secret(rendered: dict[str, list[dict[str, Any]]]) -> None:
    (pod,) = pods(rendered["server"])
    env = {entry["name"]: entry for entry in pod["containers"][0]["env"]}
    reference = env["COSYSERVE_API_KEYS"]["valueFrom"]["secretKeyRef"]
    assert reference == {"name": "cosyserve-keys", "key": "keys"}
    (pod,) = pods(rendered["cpu"])
    assert "COSYSERVE_API_KEYS" not in {entry["name"] for entry in pod["containers"][0]["env"]}


def test_connections_go_where_they_are_meant_to(
    rendered: dict[str, list[dict[str, Any]]],
) -> None:
    parts = rendered["tensorrt-llm"]
    engine = named(parts, "NetworkPolicy", "tts-cosyserve-engine")["spec"]
    asking = engine["ingress"][-1]["from"][0]["podSelector"]["matchLabels"]
    assert asking["app.kubernetes.io/component"] == "router"
    assert [len(engine["egress"]), engine["egress"][0]["ports"][0]["port"]] == [1, 53]
    router = named(parts, "NetworkPolicy", "tts-cosyserve-router")["spec"]
    reached = {rule["ports"][0]["port"] for rule in router["egress"]}
    assert reached == {53, 8000, 6379}


def test_spans_have_a_way_out_where_values_give_one(charts: dict[str, Path]) -> None:
    parts = manifests(charts["triton"], "networkPolicy.extraEgress[0].ports[0].port=4318")
    ways = {
        name: {"ports": [{"port": 4318}]}
        in named(parts, "NetworkPolicy", f"tts-cosyserve-{name}")["spec"]["egress"]
        for name in ("router", "engine")
    }
    assert ways == {"router": True, "engine": False}


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("servingEngineSpec.engine=ray", "must be one of"),
        ("servingEngineSpec.modelSpec[0].slots=0", "slots"),
        ("servingEngineSpec.modelSpec[1].name=second", "modelSpec"),
        ("servingEngineSpec.servicePort=70000", "servicePort"),
        ("servingEngineSpec.metricsPort=8080", "metrics have a port of their own"),
        ("servingEngineSpec.enigne=workers", "enigne"),
        ("servingEngineSpec.engine=triton", "Triton servers are asked through the gateway"),
        ("servingEngineSpec.modelSpec[0].keda.enabled=true", "keda and hpa would both"),
        ("observability.dashboard=true", "written without files/cosyserve-dashboard.json"),
    ],
)
def test_values_that_make_no_sense_are_refused(
    charts: dict[str, Path], tmp_path: Path, setting: str, reason: str
) -> None:
    chart = shutil.copytree(charts["hpa"], tmp_path / "chart")
    shutil.rmtree(chart / "files", ignore_errors=True)
    defaults = yaml.safe_load((chart / "values.yaml").read_text())
    if "[" in setting:  # helm replaces lists whole
        key, _, value = setting.rpartition("=")
        _, number, *keys = re.split(r"[\[\].]+", key.removeprefix("servingEngineSpec."))
        models = defaults["servingEngineSpec"]["modelSpec"]
        place = models[0] if number == "0" else models.append({}) or models[1]
        for inner in keys[:-1]:
            place = place[inner]
        place[keys[-1]] = yaml.safe_load(value)
        (chart / "values.yaml").write_text(yaml.safe_dump(defaults))
        done = helm("template", "tts", str(chart))
    else:
        done = helm("template", "tts", str(chart), "--set", setting)
    assert done.returncode != 0
    assert reason in done.stderr


def test_an_ingress_needs_keys(charts: dict[str, Path]) -> None:
    done = helm(
        "template", "tts", str(charts["keda"]), "--set", "servingEngineSpec.apiKey.secretName="
    )
    assert "an ingress without keys" in done.stderr


def test_rules_and_dashboards_are_taken_along(charts: dict[str, Path], tmp_path: Path) -> None:
    chart = shutil.copytree(charts["server"], tmp_path / "chart")
    (chart / "files").mkdir(exist_ok=True)
    (chart / "files" / "cosyserve-rules.yaml").write_text("groups:\n- name: speech\n  rules: []\n")
    (chart / "files" / "cosyserve-dashboard.json").write_text('{\n  "title": "{{ speech }}"\n}\n')
    switches = ("--set", "observability.dashboard=true", "--set", "observability.rules=true")
    done = helm("template", "tts", str(chart), *switches)
    assert done.returncode == 0, done.stderr
    parts = [part for part in yaml.safe_load_all(done.stdout) if part]
    rules = named(parts, "PrometheusRule", "tts-cosyserve")
    assert rules["spec"] == {"groups": [{"name": "speech", "rules": []}]}
    dashboard = named(parts, "ConfigMap", "tts-cosyserve-dashboard")
    assert '"title": "{{ speech }}"' in dashboard["data"]["cosyserve.json"]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_inference_service_is_a_pod_as_the_charts(
    validate: Callable[..., object], version: str
) -> None:
    pairs = ("gpus=4", "replicas=2", "model=native", "claim=models")
    manifest = yaml.safe_load(inference_service(Stack.of(pairs)))
    predictor = manifest["spec"]["predictor"]
    assert (predictor["minReplicas"], predictor["maxReplicas"]) == (2, 4)
    assert predictor["scaleTarget"] == 44
    assert manifest["metadata"]["annotations"]["prometheus.io/port"] == "8082"
    (container,) = predictor["containers"]
    assert {"name": "COSYSERVE_METRICS_PORT", "value": "8082"} in container["env"]
    assert [port["containerPort"] for port in container["ports"]] == [8080]
    assert container["readinessProbe"]["httpGet"]["port"] == 8080
    kept = ("containers", "volumes", "terminationGracePeriodSeconds", "enableServiceLinks")
    spec = {key: predictor[key] for key in kept}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}
    validate(pod, version, strict=True)


def test_what_kubernetes_can_not_have_is_refused() -> None:
    with pytest.raises(InputError, match="give claim=NAME"):
        values_file(Stack.of(["model=native"]))
    with pytest.raises(InputError, match="layout=server"):
        inference_service(Stack.of(["layout=triton"]))
