"""What is to run in containers, on how many GPUs and for whom, checked as a whole."""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections.abc import Iterator
from typing import Literal

from pydantic import Field, model_validator

from cosyserve.deploy.key_values import Bool, Int, KeyValues
from cosyserve.deploy.stages import dit
from cosyserve.deploy.stages.deployment import LLM, Flow
from cosyserve.errors import InputError
from cosyserve.triton.process import Ports
from cosyserve.version import __version__

Layout = Literal["server", "triton", "disaggregated"]
Autoscaling = Literal["none", "hpa", "keda"]
IMAGE = re.compile(r"[a-z0-9]([\w./:-]*[a-z0-9])?:\w[\w.-]{0,100}", re.ASCII)  # with its tag
PORT, METRICS_PORT = 8080, 9090  # of the gateway, inside its container


class Stack(KeyValues):
    """The choices of whoever deploys."""

    layout: Layout = "server"
    """server: `cosyserve serve`; triton: a gateway before Triton servers; disaggregated: the same,
    with the LM on the first GPU and token2wav on others."""
    flow: Flow = "unet"
    """Of the model: CosyVoice2's own flow, or Step-Audio2's DiT."""
    llm: LLM = "ours"
    """What computes the LM: ours, or TensorRT-LLM."""
    gpus: Int = Field(default=1, ge=0, le=1024)
    """The GPUs at hand; 0: a CPU computes."""
    token2wav_gpus: Int = Field(default=3, ge=1, le=1023)
    """Of the disaggregated layout: the GPUs for token2wav, besides the LM's."""
    instances_per_gpu: Int = Field(default=1, ge=1, le=16)
    """Of Triton layouts: the servers that share a GPU."""
    model: str = ""
    """The folder of `cosyserve prepare`: on the host, in Kubernetes on the claim; empty: nano."""
    engine: str = ""
    """Of llm=trtllm: the folder of the engine, in the same place."""
    tokenizer: str = ""
    """Of llm=trtllm: the folder of the Hugging Face LM, in the same place."""
    slots: Int = Field(default=0, ge=0, le=4096)
    """The requests that a server computes at once; 0: 64 on a GPU, 8 on a CPU."""
    address: str = "0.0.0.0"
    """The address of the host that the gateway is reached at; Triton itself is at 127.0.0.1."""
    port: Int = Field(default=PORT, ge=1, le=65535)
    """The port of the host for the gateway."""
    gateway_metrics_port: Int = Field(default=METRICS_PORT, ge=1, le=65535)
    """The port of the host for the gateway's metrics, which need no key: at 127.0.0.1 only."""
    http_port: Int = Field(default=0, ge=0, le=65535)
    """The port of the host for the first Triton server; further servers count on; 0: the
    original's."""
    grpc_port: Int = Field(default=0, ge=0, le=65535)
    """As http_port, for gRPC."""
    metrics_port: Int = Field(default=0, ge=0, le=65535)
    """As http_port, for Triton's metrics."""
    keys: Bool = True
    """Whether clients need a key: those of COSYSERVE_API_KEYS, or of a secret in Kubernetes."""
    redis: Bool = False
    """Whether voices are kept in a Redis server, which runs beside."""
    shm_mb: Int = Field(default=1024, ge=64)
    """The shared memory of a Triton server; its Python models die of a container's 64 MB."""
    image: str = "cosyserve"
    """The images' name, with its registry."""
    tag: str = __version__
    """The images' tag; -cpu, -cuda or -triton comes behind it."""
    replicas: Int = Field(default=1, ge=1)
    """Kubernetes: the servers to begin with."""
    max_replicas: Int = Field(default=0, ge=0)
    """Kubernetes: the most servers that there may be; 0: as many as GPUs allow."""
    autoscaling: Autoscaling = "none"
    """Kubernetes: what adds servers, by slots in use and refusals."""
    prometheus: str = "http://prometheus-operated.monitoring.svc:9090"
    """Kubernetes: where KEDA asks for metrics."""
    host: str = ""
    """Kubernetes: the name of an ingress; empty: none."""
    claim: str = ""
    """Kubernetes: the PersistentVolumeClaim that has the model's folder."""

    @model_validator(mode="after")
    def _check_gpus(self) -> Stack:
        if self.llm == "trtllm" and self.gpus == 0:
            raise InputError("llm=trtllm needs a GPU: give gpus=1 or more, or leave it out")
        if self.layout == "disaggregated" and self.gpus < 1 + self.token2wav_gpus:
            raise InputError(
                f"disaggregated takes {1 + self.token2wav_gpus} GPUs, 1 for the LM and "
                f"{self.token2wav_gpus} for token2wav, but gpus={self.gpus}: give more of them, "
                "or fewer token2wav_gpus"
            )
        if self.gpus and self.most_replicas > self.gpus:
            raise InputError(
                f"max_replicas={self.most_replicas} take a GPU each, but gpus={self.gpus}: give "
                "more of them, or fewer replicas"
            )
        if self.replicas > self.most_replicas:
            raise InputError(f"replicas={self.replicas} are more than max_replicas")
        return self

    @model_validator(mode="after")
    def _check_llm(self) -> Stack:
        if self.layout == "server" and self.llm == "trtllm":
            raise InputError("llm=trtllm is for layout=triton and layout=disaggregated")
        if self.layout == "server" and "instances_per_gpu" in self.model_fields_set:
            raise InputError("instances_per_gpu is for Triton servers: leave it out")
        if self.llm == "trtllm":
            for key in ("model", "engine", "tokenizer"):
                if not getattr(self, key):
                    raise InputError(f"llm=trtllm needs {key}=FOLDER")
        elif given := {"engine", "tokenizer"} & self.model_fields_set:
            raise InputError(f"{min(given)} is for llm=trtllm: leave it out")
        return self

    @model_validator(mode="after")
    def _check_image(self) -> Stack:
        if not IMAGE.fullmatch(f"{self.image}:{self.tag}"):
            raise InputError(
                f"image={self.image!r:.80} and tag={self.tag!r:.80} name no images: write "
                "image=registry.example/cosyserve and tag=1.0"
            )
        return self

    @model_validator(mode="after")
    def _check_reach(self) -> Stack:
        try:
            loopback = ipaddress.ip_address(self.address).is_loopback
        except ValueError:
            raise InputError(f"address must be an IP address, got {self.address!r:.40}") from None
        if not self.keys and not loopback:
            raise InputError(
                f"keys=false lets anybody who reaches {self.address} speak at your cost: leave it "
                "out, or give address=127.0.0.1"
            )
        if not self.keys and self.host:
            raise InputError(f"keys=false lets anybody who finds {self.host} speak: leave it out")
        taken: dict[int, str] = {}
        for name, port in self.published():
            if other := taken.get(port):
                raise InputError(
                    f"port {port} is given twice, to {other} and to {name}: set port, "
                    "gateway_metrics_port, http_port, grpc_port and metrics_port so that all fit"
                )
            taken[port] = name
        return self

    def written_by(self, verb: str) -> str:
        """The first line of a file: the command that writes it, to be typed into a shell."""
        words = [word for pair in self.given() for word in ("--set", pair)]
        return f"# Written by `{shlex.join(('cosyserve', 'deploy', verb, *words))}`.\n"

    @property
    def computing_gpus(self) -> int:
        """The GPUs that have servers of their own."""
        return self.token2wav_gpus if self.layout == "disaggregated" else self.gpus

    @property
    def slots_each(self) -> int:
        return self.slots or (64 if self.gpus else 8)

    @property
    def most_replicas(self) -> int:
        return self.max_replicas or max(self.replicas, self.computing_gpus)

    @property
    def model_name(self) -> str:
        """Of the model that streams, in a Triton server."""
        return "cosyvoice2_dit" if self.flow == "dit" else "cosyvoice2"

    @property
    def llm_apart(self) -> bool:
        """Whether a server of its own has the LM."""
        return self.layout == "disaggregated" or (
            self.layout == "triton" and self.llm == "trtllm" and self.flow == "dit"
        )

    def triton_names(self) -> list[str]:
        """Of every Triton server that speaks, GPU after GPU."""
        if self.layout == "server":
            return []
        count = max(1, self.computing_gpus) * self.instances_per_gpu
        return ["triton"] if count == 1 else [f"triton-{n}" for n in range(1, count + 1)]

    def triton_ports(self, number: int) -> Ports:
        """The ports of the host for a Triton server, counted from 0."""
        several = len(self.triton_names()) > 1
        usual = dit.FIRST_PORTS if several else dit.PORTS if self.llm_apart else Ports()
        first = (
            self.http_port or usual.http,
            self.grpc_port or usual.grpc,
            self.metrics_port or usual.metrics,
        )
        return Ports(*(port + number for port in first))

    def published(self) -> Iterator[tuple[str, int]]:
        """Every port of the host, and what it is for."""
        yield "the gateway", self.port
        yield "the gateway (metrics)", self.gateway_metrics_port
        for number, name in enumerate(self.triton_names()):
            for side, port in vars(self.triton_ports(number)).items():
                yield f"{name} ({side})", port

    def image_name(self, kind: Literal["cpu", "cuda", "triton"]) -> str:
        return f"{self.image}:{self.tag}-{kind}"
