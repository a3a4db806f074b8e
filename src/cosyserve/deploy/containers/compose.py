"""A stack as a Compose file."""

from __future__ import annotations

from typing import Any

import yaml

from cosyserve.deploy.containers import commands
from cosyserve.deploy.containers.stack import METRICS_PORT, PORT, Stack
from cosyserve.settings import Settings

HOME = "/var/lib/cosyserve"
REDIS_IMAGE = "docker.io/library/redis:7.4.2-bookworm"
GRACE_SECONDS = 15  # on top of what running requests have, until a container is killed
START_SECONDS = 300  # until a server that is not ready counts as ill

Service = dict[str, Any]


def compose_file(stack: Stack) -> str:
    """The text of the file."""
    services = _server(stack) if stack.layout == "server" else _fleet(stack)
    volumes = ["home"]
    if stack.redis:
        services["redis"] = _redis()
        volumes.append("redis")
    content = {
        "name": "cosyserve",
        "services": services,
        "volumes": {volume: {} for volume in volumes},
    }
    text: str = yaml.dump(content, Dumper=_Plain, sort_keys=False, width=1000)
    return stack.written_by("compose") + text


class _Plain(yaml.SafeDumper):
    """What occurs twice is written twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _server(stack: Stack) -> dict[str, Service]:
    gpus = list(range(stack.gpus))
    return {
        "server": {
            "image": stack.image_name("cuda" if gpus else "cpu"),
            "command": commands.server(stack, len(gpus)),
            **_hardened(),
            **_reached(stack),
            **_on_gpus(gpus),
            "volumes": [f"home:{HOME}", *_folders(stack)],
            **_after_redis(stack),
        }
    }


def _fleet(stack: Stack) -> dict[str, Service]:
    """Triton servers, that of the LM if it has one, and the gateway before them."""
    first = 1 if stack.layout == "disaggregated" else 0
    servers = {
        name: _triton(stack, number, first + number // stack.instances_per_gpu)
        for number, name in enumerate(stack.triton_names())
    }
    apart = {"llm": _lm(stack)} if stack.llm_apart else {}
    gateway: Service = {
        "image": stack.image_name("cpu"),
        "command": commands.gateway(stack, [f"{name}:8001" for name in servers]),
        **_hardened(),
        **_reached(stack),
        "volumes": [f"home:{HOME}"],
        **_after_redis(stack),
    }
    return {**apart, **servers, "gateway": gateway}


def _triton(stack: Stack, number: int, gpu: int) -> Service:
    ports = vars(stack.triton_ports(number)).values()
    return {
        **_triton_image(stack, commands.triton(stack, "llm")),
        "ports": [f"127.0.0.1:{port}:{8000 + side}" for side, port in enumerate(ports)],
        **_on_gpus([gpu] if stack.gpus else []),
        **({"depends_on": {"llm": {"condition": "service_healthy"}}} if stack.llm_apart else {}),
    }


def _lm(stack: Stack) -> Service:
    path = "/health" if stack.llm == "trtllm" else "/v2/health/ready"
    return {
        **_triton_image(stack, commands.lm(stack)),
        "healthcheck": {
            "test": ["CMD", "python3", "/opt/healthcheck.py", f"http://127.0.0.1:8000{path}"],
            "interval": "10s",
            "timeout": "5s",
            "start_period": f"{START_SECONDS}s",
        },
        **_on_gpus([0] if stack.gpus else []),
    }


def _triton_image(stack: Stack, script: str) -> Service:
    return {
        "image": stack.image_name("triton"),
        "entrypoint": ["sh", "-c"],
        "command": [script.replace("$", "$$")],
        **_hardened(),
        "init": True,  # the other images have tini
        "shm_size": f"{stack.shm_mb}m",
        "ulimits": {"memlock": -1, "stack": 67108864},
        "volumes": _folders(stack),
    }


def _hardened() -> Service:
    """What every container of ours has in common."""
    seconds = int(Settings.model_fields["shutdown_seconds"].default) + GRACE_SECONDS
    return {
        "restart": "unless-stopped",
        "stop_grace_period": f"{seconds}s",
        "read_only": True,
        "tmpfs": ["/tmp"],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
    }


def _reached(stack: Stack) -> Service:
    """The gateway's address, and who may ask it."""
    host = f"[{stack.address}]" if ":" in stack.address else stack.address
    if stack.keys:
        keys = "${COSYSERVE_API_KEYS:?give clients a key: set COSYSERVE_API_KEYS}"
    else:
        keys = ""
    environment = {"COSYSERVE_API_KEYS": keys, "COSYSERVE_METRICS_PORT": str(METRICS_PORT)}
    if stack.layout == "server":
        environment["COSYSERVE_SLOTS"] = str(stack.slots_each)
    if stack.redis:
        environment["COSYSERVE_VOICE_STORE"] = "redis://redis:6379/0"
    ports = [
        f"{host}:{stack.port}:{PORT}",
        f"127.0.0.1:{stack.gateway_metrics_port}:{METRICS_PORT}",
    ]
    return {"ports": ports, "environment": environment}


def _on_gpus(gpus: list[int]) -> Service:
    if not gpus:
        return {}
    device = {"driver": "nvidia", "device_ids": [*map(str, gpus)], "capabilities": ["gpu"]}
    return {"deploy": {"resources": {"reservations": {"devices": [device]}}}}


def _folders(stack: Stack) -> list[Service]:
    """The host's folders; one that is not there is an error, not made."""
    places = {
        commands.MODEL: stack.model,
        commands.ENGINE: stack.engine,
        commands.TOKENIZER: stack.tokenizer,
    }
    return [
        {
            "type": "bind",
            "source": folder if folder.startswith(("/", ".", "~")) else f"./{folder}",
            "target": inside,
            "read_only": True,
            "bind": {"create_host_path": False},
        }
        for inside, folder in places.items()
        if folder
    ]


def _after_redis(stack: Stack) -> Service:
    return {"depends_on": {"redis": {"condition": "service_healthy"}}} if stack.redis else {}


def _redis() -> Service:
    return {
        "image": REDIS_IMAGE,
        "command": ["redis-server", "--appendonly", "yes"],
        "user": "999:999",
        "restart": "unless-stopped",
        "read_only": True,
        "tmpfs": ["/tmp"],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "volumes": ["redis:/data"],
        "healthcheck": {"test": ["CMD", "redis-cli", "ping"], "interval": "5s", "timeout": "3s"},
    }
