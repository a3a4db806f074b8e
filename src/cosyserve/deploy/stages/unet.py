"""The stages of the original's run.sh: CosyVoice2 with its own flow, on one GPU."""

from __future__ import annotations

from cosyserve.deploy.stages import either_flow
from cosyserve.deploy.stages.deployment import Deployment, cosyserve, triton_needed, triton_server
from cosyserve.deploy.stages.stage import Stage, path_needed
from cosyserve.triton.process import Ports

MAX_BATCH_SIZE = 16
START = 3  # the stage that starts the server


def stages(deployment: Deployment) -> list[Stage]:
    ports = deployment.first_ports or Ports()
    return [
        either_flow.environment(),
        either_flow.download(deployment),
        either_flow.engine(deployment, MAX_BATCH_SIZE),
        _repository(deployment, ports),
        _start(deployment, ports),
        _http_client(deployment, ports),
        _grpc_benchmark(deployment, ports),
        _offline_benchmark(deployment),
    ]


def _repository(deployment: Deployment, ports: Ports) -> Stage:
    settings = [f"triton_max_batch_size={MAX_BATCH_SIZE}", f"grpc=localhost:{ports.grpc}"]
    if deployment.llm == "trtllm":
        settings += [
            "triton_backend=tensorrtllm",
            f"engine_dir={deployment.engine}",
            "kv_cache_free_gpu_mem_fraction=0.5",
        ]
    repository = deployment.repository
    commands = (deployment.render(repository, *settings),)
    needs = either_flow.repository_needs(deployment)
    return Stage(2, "Triton model repository", commands, needs, (repository,))


def _start(deployment: Deployment, ports: Ports) -> Stage:
    needs = (path_needed(deployment.repository, "run --stage 2 first"),)
    commands = (triton_server(deployment.repository, ports, gpu=0),)
    return Stage(START, "start Triton", commands, needs)


def _http_client(deployment: Deployment, ports: Ports) -> Stage:
    needs = (triton_needed(ports, START), *deployment.needs_of_voice())
    return Stage(4, "HTTP client", (deployment.ask_once(ports),), needs)


def _grpc_benchmark(deployment: Deployment, ports: Ports) -> Stage:
    name = deployment.model_name
    command = cosyserve(
        *("client", "grpc", "--server-addr", "localhost", "--server-port", ports.grpc),
        *("--model-name", name if deployment.mode == "streaming" else f"{name}_offline"),
        *("--num-tasks", deployment.num_tasks, "--mode", deployment.mode),
        *("--use-spk2info-cache", deployment.use_spk2info_cache),
        *deployment.texts(),
        *("--log-dir", deployment.log_folder("concurrent_tasks", deployment.num_tasks)),
    )
    needs = (triton_needed(ports, START), *deployment.needs_of_texts())
    return Stage(5, "gRPC benchmark", (command,), needs)


def _offline_benchmark(deployment: Deployment) -> Stage:
    return either_flow.offline_benchmark(deployment, 6)
