"""The stages of the original's run_stepaudio2_dit_token2wav.sh: Step-Audio2's DiT flow, at last
with the LM on a GPU of its own."""

from __future__ import annotations

from pathlib import Path

from cosyserve.deploy.stages import either_flow
from cosyserve.deploy.stages.deployment import (
    DATASET,
    Deployment,
    cosyserve,
    ready_url,
    triton_needed,
    triton_server,
)
from cosyserve.deploy.stages.stage import (
    Command,
    ServerCommand,
    Stage,
    answer_needed,
    path_needed,
    program_needed,
)
from cosyserve.triton.process import Ports

MAX_BATCH_SIZE = 64
PORTS = Ports(http=18000)
FIRST_PORTS = Ports(http=17001, grpc=18001, metrics=16001)  # of several servers, counted upwards
START, SPREAD = 3, 7  # the stages that start servers
TASKS = (1, 2, 3, 4, 5, 6)


def stages(deployment: Deployment) -> list[Stage]:
    ports = deployment.first_ports or PORTS
    return [
        either_flow.environment(),
        either_flow.download(deployment),
        either_flow.engine(deployment, MAX_BATCH_SIZE),
        _repositories(deployment, ports),
        _start(deployment, ports),
        _grpc_benchmark(deployment, ports),
        either_flow.offline_benchmark(deployment, 5),
        _standalone(deployment),
        _spread(deployment),
        _spread_benchmark(deployment),
    ]


def _repositories(deployment: Deployment, ports: Ports) -> Stage:
    """With TensorRT-LLM one, whose LM is always elsewhere; with ours one for each role, too."""
    batch = "triton_max_batch_size=1" if deployment.llm == "trtllm" else "triton_max_batch_size=16"
    made: dict[Path, tuple[str, ...]]
    if deployment.llm == "trtllm":
        made = {
            deployment.repository: (
                f"llm_url=http://localhost:{deployment.llm_port}/v1",
                f"llm_model={deployment.engine.name}",
                "llm_prompt=chat",
            )
        }
    else:
        made = {
            deployment.repository: (f"grpc=localhost:{ports.grpc}",),
            deployment.lm_repository: ("role=lm",),
            deployment.token2wav_repository: (
                "role=token2wav",
                f"grpc=localhost:{deployment.lm_ports.grpc}",
            ),
        }
    commands = tuple(deployment.render(folder, batch, *chosen) for folder, chosen in made.items())
    needs = either_flow.repository_needs(deployment)
    return Stage(2, "Triton model repositories", commands, needs, tuple(made))


def _start(deployment: Deployment, ports: Ports) -> Stage:
    needs = [path_needed(deployment.repository, "run --stage 2 first")]
    commands: list[Command] = [triton_server(deployment.repository, ports, gpu=0)]
    if deployment.llm == "trtllm":
        needs.append(program_needed("trtllm-serve", either_flow.TRTLLM_ADVICE))
        commands.insert(0, _llm_server(deployment))
    return Stage(START, "start LLM and Triton", tuple(commands), tuple(needs))


def trtllm_serve(tokenizer: object, engine: object, port: int) -> tuple[str, ...]:
    """The words of the LM's server, as the original starts it."""
    return (
        *("mpirun", "-np", "1", "--allow-run-as-root", "--oversubscribe"),
        *("trtllm-serve", "serve", "--tokenizer", str(tokenizer), str(engine)),
        *("--port", str(port), "--max_batch_size", str(MAX_BATCH_SIZE)),
        *("--kv_cache_free_gpu_memory_fraction", "0.4"),
    )


def _llm_server(deployment: Deployment) -> ServerCommand:
    argv = trtllm_serve(deployment.lm_folder, deployment.engine, deployment.llm_port)
    health = f"http://localhost:{deployment.llm_port}/health"
    return ServerCommand(argv, {"CUDA_VISIBLE_DEVICES": "0"}, health, (deployment.llm_port,))


def _grpc_benchmark(deployment: Deployment, ports: Ports) -> Stage:
    command = cosyserve(
        *("client", "grpc", "--server-addr", "localhost", "--server-port", ports.grpc),
        *("--model-name", deployment.model_name, "--num-tasks", deployment.num_tasks),
        *("--mode", "streaming", *deployment.texts()),
        *("--log-dir", deployment.log_folder("concurrent_tasks", deployment.num_tasks)),
    )
    needs = (triton_needed(ports, START), *deployment.needs_of_texts())
    return Stage(4, "gRPC benchmark", (command,), needs)


def _standalone(deployment: Deployment) -> Stage:
    """Flow and vocoder alone: streamed in equal chunks, in growing ones, and whole."""
    ways = {
        "equal": ("--strategy", "equal"),
        "exponential": ("--strategy", "exponential"),
        "whole": ("--whole",),
    }
    commands = tuple(
        cosyserve(
            *("bench", "tokens", *([deployment.tokens] if deployment.tokens else DATASET)),
            *("--model", deployment.native, *way),
            *("--output-dir", deployment.log_folder("tokens", name)),
        )
        for name, way in ways.items()
    )
    needs = (*either_flow.repository_needs(deployment), *deployment.needs_of_tokens())
    return Stage(6, "standalone token2wav", commands, needs)


def spread_ports(deployment: Deployment) -> list[Ports]:
    """Of every token2wav server, GPU after GPU."""
    first = deployment.first_ports or FIRST_PORTS
    count = deployment.gpus * deployment.instances_per_gpu
    return [Ports(first.http + n, first.grpc + n, first.metrics + n) for n in range(count)]


def _spread(deployment: Deployment) -> Stage:
    trtllm = deployment.llm == "trtllm"
    repository = deployment.repository if trtllm else deployment.token2wav_repository
    needs = [path_needed(repository, "run --stage 2 first")]
    lm = _llm_server(deployment)
    if trtllm:
        needs.append(program_needed("trtllm-serve", either_flow.TRTLLM_ADVICE))
    else:
        lm = triton_server(deployment.lm_repository, deployment.lm_ports, gpu=0)
    servers = [
        triton_server(repository, ports, gpu=1 + number // deployment.instances_per_gpu)
        for number, ports in enumerate(spread_ports(deployment))
    ]
    return Stage(SPREAD, "LLM on GPU 0, token2wav on others", (lm, *servers), tuple(needs))


def _spread_benchmark(deployment: Deployment) -> Stage:
    servers = spread_ports(deployment)
    addresses = (word for s in servers for word in ("--address", f"localhost:{s.grpc}"))
    command = cosyserve(
        *("bench", "triton", *addresses, "--model-name", deployment.model_name),
        *("--gpus", ",".join(str(1 + gpu) for gpu in range(deployment.gpus))),
        *("--instances-per-gpu", deployment.instances_per_gpu),
        *("--tasks", ",".join(map(str, TASKS)), "--mode", "streaming"),
        *deployment.texts(),
        *("--log-dir", deployment.log_folder("disaggregated")),
    )
    advice = f"start them in another terminal, with --stage {SPREAD} --stop-stage {SPREAD}"
    needs = (*(answer_needed(ready_url(s), advice) for s in servers), *deployment.needs_of_texts())
    return Stage(8, "benchmark over GPUs and tasks", (command,), needs)
