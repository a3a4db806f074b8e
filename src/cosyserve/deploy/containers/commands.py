"""What containers are told to run; folders and ports are those inside of them."""

from __future__ import annotations

import shlex

from cosyserve.deploy.containers.stack import Stack
from cosyserve.deploy.stages.dit import trtllm_serve

MODEL, ENGINE, TOKENIZER = "/model", "/engine", "/tokenizer"
REPOSITORY = "/tmp/repository"
LLM_PORT = 8000


def server(stack: Stack, gpus: int) -> list[str]:
    """The gateway with a worker on each of its GPUs."""
    devices = [f"cuda:{number}" for number in range(gpus)] or ["cpu"]
    words = [word for device in devices for word in ("--device", device)]
    return ["serve", "--model", model(stack), *words]


def gateway(stack: Stack, servers: list[str]) -> list[str]:
    """The gateway before Triton servers, which are given as host:port."""
    name = "" if stack.model_name == "cosyvoice2" else f"/{stack.model_name}"
    return ["serve", "--engine", f"triton://{','.join(servers)}{name}"]


def triton(stack: Stack, llm_host: str) -> str:
    """For a shell: a Triton server with the models that speak."""
    settings = {"slots": str(stack.slots_each)}
    if stack.layout == "disaggregated" and stack.llm == "ours":
        settings |= {"role": "token2wav", "grpc": f"{llm_host}:8001"}
    elif stack.llm_apart:
        settings |= {
            "llm_url": f"http://{llm_host}:{LLM_PORT}/v1",
            "llm_model": ENGINE.removeprefix("/"),  # as trtllm-serve calls it, by its folder
            "llm_prompt": "chat",
            "triton_max_batch_size": "1",
        }
    elif stack.llm == "trtllm":
        settings |= {"triton_backend": "tensorrtllm", "engine_dir": ENGINE}
    return _rendered(stack, settings)


def lm(stack: Stack) -> str:
    """For a shell: the server of the LM alone."""
    if stack.llm == "ours":
        return _rendered(stack, {"role": "lm", "slots": str(stack.slots_each)})
    words = (*trtllm_serve(TOKENIZER, ENGINE, LLM_PORT), "--host", "0.0.0.0")
    return f"exec {shlex.join(words)}"


def _rendered(stack: Stack, settings: dict[str, str]) -> str:
    """A repository, which takes a second and little room, and the server on it.

    A container that is started again may still have the last one's.
    """
    settings["device"] = "cuda" if stack.gpus else "cpu"
    pairs = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    render = ("cosyserve", "deploy", "triton", "--model", model(stack), "--out", REPOSITORY, *pairs)
    return (
        f"rm -rf {REPOSITORY} && {shlex.join(render)} && exec cosyserve deploy start {REPOSITORY}"
    )


def model(stack: Stack) -> str:
    return MODEL if stack.model else "nano"
