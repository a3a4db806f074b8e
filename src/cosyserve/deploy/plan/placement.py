"""A plan as programs: which run on which GPU, with which ports and how much memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from cosyserve.checkpoints.folder import written_whole
from cosyserve.deploy.plan.plan import Plan
from cosyserve.deploy.stages import dit, unet
from cosyserve.deploy.stages.deployment import Deployment, cosyserve
from cosyserve.deploy.stages.stage import Command, ServerCommand
from cosyserve.errors import InputError
from cosyserve.triton.process import Ports

CACHE_GIB = 256 * 48 / 1024  # of the LM: 256 slots, 12 KiB a position, 4096 positions
# Of a worker with 256 slots on an H200, by nvidia-smi (docs/stages.md), and of that what is kept
# of 64 voices.
OURS_GIB = {"unet": 62.0, "dit": 20.6}
PROMPTS_GIB = {"unet": 41.0, "dit": 0.0}
TRTLLM_GIB = 24.0  # the least that the original's guide asks for
SET_PORTS = 100  # between the ports of two sets of GPUs


@dataclass(frozen=True)
class Placed:
    """A program, and what it takes of its GPU."""

    gpus: tuple[int, ...]
    what: str
    ports: tuple[int, ...]
    memory: str
    command: Command


def placed(plan: Plan, model: Path) -> list[Placed]:
    """Every program of the plan, in the order in which they are started; the last one is the
    gateway, which all clients ask."""
    if plan.demand.llm == "ours":
        return [_workers(plan, model)]
    programs = [program for number in range(plan.sets) for program in _set(plan, model, number)]
    servers = (program for program in programs if program.what == "Triton")
    addresses = ",".join(f"localhost:{server.ports[1]}" for server in servers)
    gateway = cosyserve("serve", "--engine", f"triton://{addresses}")
    return [*programs, Placed((), "gateway", (8080,), "", gateway)]


def _workers(plan: Plan, model: Path) -> Placed:
    gpus = tuple(range(plan.gpus))
    devices = (word for gpu in gpus for word in ("--device", f"cuda:{gpu}"))
    command = cosyserve("serve", "--model", model, "--profile", "throughput", *devices)
    measured, prompts = OURS_GIB[plan.demand.flow], PROMPTS_GIB[plan.demand.flow]
    kept = f"voices' prompts {prompts:g}, " if prompts else ""
    rest = measured - CACHE_GIB - prompts
    memory = f"{measured:g} GiB each (cache {CACHE_GIB:g}, {kept}all else {rest:.1f})"
    return Placed(gpus, "gateway and a worker on each GPU", (8080,), memory, command)


def _set(plan: Plan, model: Path, number: int) -> Iterator[Placed]:
    """What the stages of a set of GPUs render and start."""
    layout, flow = plan.figure.layout, plan.demand.flow
    first = dit.FIRST_PORTS if layout.apart else dit.PORTS if flow == "dit" else Ports()
    offset = number * SET_PORTS
    deployment = Deployment(
        model,
        flow,
        plan.demand.llm,
        gpus=layout.token2wav_gpus,
        instances_per_gpu=layout.instances_per_gpu,
        first_ports=Ports(first.http + offset, first.grpc + offset, first.metrics + offset),
        llm_port=8000 + offset,
        set_name=f"_{number + 1}" if number else "",
    )
    script = dit if flow == "dit" else unet
    start = dit.SPREAD if layout.apart else script.START
    stages = {stage.number: stage for stage in script.stages(deployment)}
    yield Placed((), "repository", (), "", stages[2].commands[0])
    for command in stages[start].commands:
        assert isinstance(command, ServerCommand)
        yield _server(command, number * layout.gpus, layout.gpus)


def _server(server: ServerCommand, first_gpu: int, gpus: int) -> Placed:
    gpu = first_gpu + int(server.env["CUDA_VISIBLE_DEVICES"])
    command = replace(server, env={"CUDA_VISIBLE_DEVICES": str(gpu)})
    triton = "--grpc-port" in server.argv
    names = ("--http-port", "--grpc-port", "--metrics-port") if triton else ("--port",)
    ports = tuple(int(server.argv[server.argv.index(name) + 1]) for name in names)
    memory = f"at least {TRTLLM_GIB:g} GiB for all on the GPU" if gpus == 1 else ""
    return Placed((gpu,), "Triton" if triton else "trtllm-serve", ports, memory, command)


def write(plan: Plan, programs: list[Placed], out: Path) -> None:
    """The folder `out` with the plan as data and as a script that starts it."""
    with written_whole(out, InputError) as folder:
        data = {
            "demand": asdict(plan.demand),
            "figure": asdict(plan.figure),
            "sets": plan.sets,
            "gpus": plan.gpus,
            "capacity": plan.capacity,
            "programs": [{**asdict(one), "command": str(one.command)} for one in programs],
        }
        (folder / "plan.json").write_text(json.dumps(data, indent=2) + "\n")
        lines = ["#!/usr/bin/env bash", "set -euo pipefail", "trap 'kill 0' EXIT"]
        lines += [str(one.command) for one in programs]
        (folder / "start.sh").write_text("\n".join(lines) + "\n")
        (folder / "start.sh").chmod(0o755)
