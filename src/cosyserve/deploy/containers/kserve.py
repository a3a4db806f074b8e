"""A stack of the layout `server` as an InferenceService of KServe."""

from __future__ import annotations

from typing import Any

import yaml

from cosyserve.deploy.containers.helm import values
from cosyserve.deploy.containers.stack import PORT, Stack
from cosyserve.errors import InputError

METRICS_PORT = 8082  # Knative's proxy in the same pod has 9090 and 9091
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
SECURITY = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def inference_service(stack: Stack) -> str:
    """The text of the manifest: one container per replica, scaled by requests on their way."""
    if stack.layout != "server":
        raise InputError("an InferenceService is for layout=server; for Triton use `deploy helm`")
    spec = values(stack)["servingEngineSpec"]
    (model,) = spec["modelSpec"]
    predictor: dict[str, Any] = {
        "minReplicas": stack.replicas,
        "maxReplicas": stack.most_replicas,
        "scaleMetric": "concurrency",
        "scaleTarget": int(model["slots"] * model["slotsTarget"]),
        "timeout": 630,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": spec["terminationGracePeriodSeconds"],
        "containers": [_container(stack, spec, model)],
        "volumes": _volumes(model),
    }
    manifest = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {
            "name": "cosyserve",
            # KServe's own annotation would name the port of Knative's proxy instead.
            "annotations": {
                "prometheus.io/scrape": "true",
                "prometheus.io/port": str(METRICS_PORT),
                "prometheus.io/path": "/metrics",
            },
        },
        "spec": {"predictor": predictor},
    }
    text: str = yaml.safe_dump(manifest, sort_keys=False, width=1000)
    return stack.written_by("kserve") + text


def _container(stack: Stack, spec: dict[str, Any], model: dict[str, Any]) -> dict[str, Any]:
    amounts = {"memory": model["requestMemory"]}
    if model["requestGPU"]:
        amounts[model["requestGPUType"]] = str(model["requestGPU"])
    env: list[dict[str, Any]] = [
        {"name": "COSYSERVE_PORT", "value": str(PORT)},
        {"name": "COSYSERVE_METRICS_PORT", "value": str(METRICS_PORT)},
        {"name": "COSYSERVE_SLOTS", "value": str(model["slots"])},
    ]
    if stack.keys:
        secret = {"name": spec["apiKey"]["secretName"], "key": spec["apiKey"]["secretKey"]}
        env.append({"name": "COSYSERVE_API_KEYS", "valueFrom": {"secretKeyRef": secret}})
    folders = model["folders"].items()
    return {
        "name": "kserve-container",
        "image": f"{model['repository']}:{model['tag']}",
        "args": model["args"],
        "env": env,
        "ports": [{"containerPort": PORT, "protocol": "TCP"}],  # Knative allows one
        **{name: _probe(spec[name]) for name in PROBES},
        "resources": {"requests": amounts | {"cpu": model["requestCPU"]}, "limits": amounts},
        "securityContext": SECURITY,
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "home", "mountPath": "/var/lib/cosyserve"},
            *(
                {"name": "model", "mountPath": inside, "subPath": folder, "readOnly": True}
                for inside, folder in folders
            ),
        ],
    }


def _probe(probe: dict[str, Any]) -> dict[str, Any]:
    """The chart's, by number: Knative lets no port be called http."""
    return probe | {"httpGet": probe["httpGet"] | {"port": PORT}}


def _volumes(model: dict[str, Any]) -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = [{"name": name, "emptyDir": {}} for name in ("tmp", "home")]
    if claim := model["pvcExistingClaimName"]:
        place = {"claimName": claim, "readOnly": True}
        volumes.append({"name": "model", "persistentVolumeClaim": place})
    return volumes
