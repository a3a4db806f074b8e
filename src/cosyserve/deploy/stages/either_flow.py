"""Stages that both scripts of the original have: environment, downloads, engine, repository."""

from __future__ import annotations

from cosyserve.deploy.stages.deployment import (
    LM_NAME,
    MODEL_NAMES,
    SPK2INFO_URL,
    TOKEN2WAV_NAME,
    Deployment,
    cosyserve,
)
from cosyserve.deploy.stages.stage import Command, Need, Stage, path_needed, program_needed

TRTLLM_ADVICE = (
    "it comes with TensorRT-LLM, e.g. in nvcr.io/nvidia/tritonserver:25.06-trtllm-python-py3; "
    "or leave out --llm trtllm"
)


def environment() -> Stage:
    return Stage(-1, "environment", (cosyserve("doctor", "--model", "nano"),))


def download(deployment: Deployment) -> Stage:
    """Everything that later stages read; what is here already is left as it is."""
    commands = []
    if deployment.flow == "unet":
        commands.append(_downloaded(MODEL_NAMES[deployment.hub], deployment.published))
    if deployment.flow == "dit" or deployment.llm == "trtllm":
        commands.append(_downloaded(LM_NAME, deployment.lm_folder))
    if deployment.flow == "dit":
        commands.append(_downloaded(TOKEN2WAV_NAME, deployment.token2wav))
    if deployment.use_spk2info_cache:
        commands.append(_downloaded(SPK2INFO_URL, deployment.spk2info))
    return Stage(0, "download", tuple(commands))


def _downloaded(name: str, to: object) -> Command:
    return cosyserve("deploy", "download", name, "--to", to)


def engine(deployment: Deployment, max_batch_size: int) -> Stage:
    """The model in our folder; with TensorRT-LLM also the LM's engine. Each is tried out."""
    sources = [deployment.published]
    if deployment.flow == "dit":
        sources = [deployment.lm_folder, deployment.token2wav]
    needs = [path_needed(source, "run --stage 0 first") for source in sources]
    needs += deployment.needs_of_voice()
    makes = [deployment.native]
    commands = [cosyserve("prepare", *sources, "--out", deployment.native)]
    if deployment.llm == "trtllm":
        needs.append(path_needed(deployment.lm_folder, "run --stage 0 first"))
        needs.append(program_needed("trtllm-build", TRTLLM_ADVICE))
        makes.append(deployment.engine)
        commands.append(
            cosyserve(
                *("deploy", "engine", "llm", "--model-dir", deployment.lm_folder),
                *("--output-dir", deployment.checkpoint, "--engine-dir", deployment.engine),
                *("--dtype", deployment.trt_dtype, "--max-batch-size", max_batch_size),
                *("--max-num-tokens", 32768, "--gemm-plugin", deployment.trt_dtype),
            )
        )
    else:
        commands.append(_spoken(deployment))
    return Stage(
        1, "convert, build and test the engine", tuple(commands), tuple(needs), tuple(makes)
    )


def _spoken(deployment: Deployment) -> Command:
    """A sentence through the whole model."""
    voice: tuple[object, ...] = ()
    if deployment.reference_audio is not None:
        words = deployment.reference_text
        voice = ("--voice", deployment.reference_audio, "--voice-text", words)
    out = deployment.folder / "test.wav"
    return cosyserve("say", deployment.target_text, "--model", deployment.native, *voice, "-o", out)


def repository_needs(deployment: Deployment) -> tuple[Need, ...]:
    needs = [path_needed(deployment.native, "run --stage 1 first")]
    if deployment.llm == "trtllm":
        needs.append(path_needed(deployment.engine, "run --stage 1 first"))
    return tuple(needs)


def offline_benchmark(deployment: Deployment, number: int) -> Stage:
    """LM and token2wav one after the other, in batches, without a server."""
    lm: tuple[object, ...] = ("--backend", "ours")
    if deployment.llm == "trtllm":
        lm = (
            *("--backend", "trtllm", "--engine-dir", deployment.engine),
            *("--llm-model-name-or-path", deployment.lm_folder),
        )
    command = cosyserve(
        *("bench", "offline", "--model", deployment.native, *lm),
        *(word for size in deployment.batch_sizes for word in ("--batch-size", size)),
        *("--token2wav-batch-size", 1),
        *deployment.texts(),
        *("--output-dir", deployment.log_folder("offline")),
    )
    needs = (*repository_needs(deployment), *deployment.needs_of_texts())
    return Stage(number, "offline benchmark", (command,), needs)
