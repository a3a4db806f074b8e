"""A stack as a Helm chart: templates that are the same for all, and the values of this one."""

from __future__ import annotations

import shutil
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import yaml

from cosyserve.checkpoints.folder import written_whole
from cosyserve.deploy.containers import commands
from cosyserve.deploy.containers.compose import REDIS_IMAGE, START_SECONDS
from cosyserve.deploy.containers.stack import METRICS_PORT, PORT, Stack
from cosyserve.errors import InputError
from cosyserve.settings import Settings

LLM_HOST = '{{ include "cosyserve.fullname" . }}-llm'  # a template of the chart fills it in
TARGET = 0.7  # of the slots in use: with more, another server is started
DRAIN_SECONDS = 10  # until every proxy has noticed that a server leaves
# A Triton server that has lost a process is replaced in its container, which takes as long as its
# start.
TRITON_PATIENCE = START_SECONDS // 10
OBSERVED = ("cosyserve-rules.yaml", "cosyserve-dashboard.json")

Values = dict[str, Any]


def write_chart(stack: Stack, out: Path) -> None:
    """Writes the folder of the chart, with the dashboard and the rules that the package has."""
    package = files("cosyserve.deploy")
    with written_whole(out, InputError) as folder:
        with as_file(package / "containers" / "chart") as chart:
            shutil.copytree(chart, folder, dirs_exist_ok=True)
        (folder / "values.yaml").write_text(values_file(stack), "utf-8")
        for name in OBSERVED:
            source = package / "observability" / name
            if source.is_file():
                (folder / "files").mkdir(exist_ok=True)
                (folder / "files" / name).write_text(source.read_text("utf-8"), "utf-8")


def values_file(stack: Stack) -> str:
    text: str = yaml.safe_dump(values(stack), sort_keys=False, width=1000)
    return stack.written_by("helm") + text


def values(stack: Stack) -> Values:
    triton = stack.layout != "server"
    triton_probes = _probes("/v2/health/live", "/v2/health/ready", TRITON_PATIENCE)
    if stack.model and not stack.claim:
        raise InputError("model is a folder on a PersistentVolumeClaim: give claim=NAME, too")
    return {
        "servingEngineSpec": {
            "engine": "triton" if triton else "workers",
            "modelSpec": [_model(stack)],
            "apiKey": {"secretName": "cosyserve-keys" if stack.keys else "", "secretKey": "keys"},
            "containerPort": PORT,
            "metricsPort": METRICS_PORT,
            "servicePort": 80,
            **(triton_probes if triton else _gateway_probes()),
            "terminationGracePeriodSeconds": _grace_seconds(),
            "drainSeconds": DRAIN_SECONDS,
            "runtimeClassName": "",
            "serviceMonitor": {"enabled": stack.autoscaling != "none", "interval": "15s"},
            "pdb": {"enabled": True, "maxUnavailable": 1},
        },
        "llmSpec": _llm(stack),
        "routerSpec": _router(stack),
        "redisSpec": {
            "enabled": stack.redis,
            "repository": REDIS_IMAGE.partition(":")[0],
            "tag": REDIS_IMAGE.partition(":")[2],
            "pvcStorage": "1Gi",
            "storageClass": "",
        },
        "networkPolicy": {
            "enabled": True,
            "monitoringNamespace": "monitoring",
            "extraEgress": [],
        },
        "observability": {"dashboard": False, "rules": False, "labels": {}},
    }


def _model(stack: Stack) -> Values:
    """What computes: each replica on its GPU."""
    kind, words = _workload(stack)
    return {
        "name": stack.model_name,
        **_image(stack, kind),
        **words,
        "replicaCount": stack.replicas,
        "requestCPU": "4",
        "requestMemory": "8Gi",
        **_gpu(stack),
        **_claim(stack),
        "shmSize": f"{stack.shm_mb}Mi",
        "slots": stack.slots_each,
        "slotsTarget": TARGET,
        "env": [],
        "nodeSelectorTerms": [],
        "tolerations": [],
        "maxReplicaCount": stack.most_replicas,
        "keda": {
            "enabled": stack.autoscaling == "keda",
            "serverAddress": stack.prometheus,
            "pollingInterval": 5,
            "cooldownPeriod": 300,
        },
        "hpa": {"enabled": stack.autoscaling == "hpa"},
    }


def _workload(stack: Stack) -> tuple[str, Values]:
    if stack.layout == "server":
        words = commands.server(stack, 1 if stack.gpus else 0)
        return "cuda" if stack.gpus else "cpu", {"command": [], "args": words}
    return "triton", {"command": ["sh", "-c"], "args": [commands.triton(stack, LLM_HOST)]}


def _llm(stack: Stack) -> Values:
    path = "/health" if stack.llm == "trtllm" else "/v2/health/ready"
    return {
        "enabled": stack.llm_apart,
        **_image(stack, "triton"),
        "command": ["sh", "-c"],
        "args": [commands.lm(stack)] if stack.llm_apart else [],
        "requestCPU": "4",
        "requestMemory": "8Gi",
        **_gpu(stack),
        **_claim(stack),
        "shmSize": f"{stack.shm_mb}Mi",
        "nodeSelectorTerms": [],
        "tolerations": [],
        **_probes(path, path, TRITON_PATIENCE),
    }


def _router(stack: Stack) -> Values:
    return {
        "enableRouter": stack.layout != "server",
        **_image(stack, "cpu"),
        "replicaCount": 2,
        "requestCPU": "1",
        "requestMemory": "1Gi",
        "env": [],
        "nodeSelectorTerms": [],
        "tolerations": [],
        **_gateway_probes(),
        "autoscaling": {
            "enabled": stack.layout != "server" and stack.autoscaling != "none",
            "minReplicas": 2,
            "maxReplicas": 8,
            "targetCPUUtilizationPercentage": 70,
        },
        "pdb": {"enabled": True, "maxUnavailable": 1},
        "sessionAffinitySeconds": 0,
        "ingress": {
            "enabled": bool(stack.host),
            "className": "nginx",
            "hosts": [{"host": stack.host}] if stack.host else [],
            "tls": [],
            "annotations": {
                "nginx.ingress.kubernetes.io/affinity": "cookie",
                "nginx.ingress.kubernetes.io/proxy-body-size": "16m",
                "nginx.ingress.kubernetes.io/proxy-buffering": "off",
                "nginx.ingress.kubernetes.io/proxy-request-buffering": "off",
                "nginx.ingress.kubernetes.io/proxy-read-timeout": "630",
                "nginx.ingress.kubernetes.io/proxy-send-timeout": "630",
            },
        },
    }


def _image(stack: Stack, kind: str) -> Values:
    return {
        "repository": stack.image,
        "tag": f"{stack.tag}-{kind}",
        "imagePullPolicy": "IfNotPresent",
    }


def _gpu(stack: Stack) -> Values:
    return {"requestGPU": 1 if stack.gpus else 0, "requestGPUType": "nvidia.com/gpu"}


def _claim(stack: Stack) -> Values:
    places = {
        commands.MODEL: stack.model,
        commands.ENGINE: stack.engine,
        commands.TOKENIZER: stack.tokenizer,
    }
    return {
        "pvcExistingClaimName": stack.claim,
        "folders": {inside: folder for inside, folder in places.items() if folder},
    }


def _gateway_probes() -> Values:
    return _probes("/health", "/ready", 3)


def _probes(live: str, ready: str, patience: int) -> Values:
    """A server listens when its model is loaded and warmed up, which takes a minute on a GPU."""

    def probe(path: str, **numbers: int) -> Values:
        return {"httpGet": {"path": path, "port": "http"}, "timeoutSeconds": 5, **numbers}

    return {
        "startupProbe": probe(ready, periodSeconds=5, failureThreshold=2 * START_SECONDS // 5),
        "livenessProbe": probe(live, periodSeconds=10, failureThreshold=patience),
        "readinessProbe": probe(ready, periodSeconds=5, failureThreshold=1),
    }


def _grace_seconds() -> int:
    running = int(Settings.model_fields["shutdown_seconds"].default)
    return DRAIN_SECONDS + running + 20
