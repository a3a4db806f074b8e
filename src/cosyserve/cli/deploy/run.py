"""`cosyserve deploy run` and `download`: the original's scripts, stage by stage."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cosyserve.cli.client import RunMode
from cosyserve.cli.common import note
from cosyserve.cli.deploy.engine import EngineDtype
from cosyserve.errors import InputError


class FlowName(StrEnum):
    UNET = "unet"
    DIT = "dit"


class LLMName(StrEnum):
    OURS = "ours"
    TRTLLM = "trtllm"


class HubName(StrEnum):
    HUGGING_FACE = "huggingface"
    MODELSCOPE = "modelscope"


def run(
    stage: Annotated[int, typer.Option(help="The first stage to run.")],
    stop_stage: Annotated[int, typer.Option(help="The last stage to run.")],
    flow: Annotated[
        FlowName, typer.Option(help="The flow: CosyVoice2's own, or Step-Audio2's DiT.")
    ] = FlowName.UNET,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the exact commands and run nothing.")
    ] = False,
    folder: Annotated[Path, typer.Option("--dir", help="The folder of the deployment.")] = Path(
        "."
    ),
    llm: Annotated[
        LLMName, typer.Option(help="What computes the LM: ours, or TensorRT-LLM.")
    ] = LLMName.OURS,
    hub: Annotated[
        HubName, typer.Option(help="The hub that CosyVoice2-0.5B is downloaded from.")
    ] = HubName.MODELSCOPE,
    trt_dtype: Annotated[
        EngineDtype, typer.Option(help="The precision of TensorRT-LLM.")
    ] = EngineDtype.BFLOAT16,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting of the Triton repository, as of `cosyserve deploy triton`. "
            "The option may be repeated.",
        ),
    ] = None,
    reference_audio: Annotated[
        Path | None, typer.Option(help="A recording whose voice is to speak in tests.")
    ] = None,
    reference_text: Annotated[str, typer.Option(help="The words of that recording.")] = "",
    target_text: Annotated[
        str, typer.Option(help="The text to speak in tests; by default a sentence.")
    ] = "",
    manifest: Annotated[
        Path | None,
        typer.Option(
            help="The texts of benchmarks, in lines of id|prompt_text|prompt_wav|target_text; "
            "by default the original's dataset, from Hugging Face."
        ),
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(
            help="The speech tokens of stage 6 of dit, as `cosyserve bench tokens` reads them; "
            "by default those of that dataset."
        ),
    ] = None,
    num_tasks: Annotated[int, typer.Option(min=1, help="Requests at once in a benchmark.")] = 4,
    mode: Annotated[
        RunMode, typer.Option(help="Whether answers of the gRPC benchmark stream.")
    ] = RunMode.STREAMING,
    use_spk2info_cache: Annotated[
        bool,
        typer.Option(
            "--use-spk2info-cache",
            help="Download spk2info.pt, too, and speak in its voice instead of each recording's.",
        ),
    ] = False,
    batch_size: Annotated[
        list[int] | None, typer.Option(min=1, help="A batch of the offline benchmark; repeated.")
    ] = None,
    gpus: Annotated[
        int, typer.Option(min=1, help="The GPUs of token2wav beside the LM's, in stages 7 and 8.")
    ] = 3,
    instances_per_gpu: Annotated[
        int, typer.Option(min=1, help="The token2wav servers on each of those GPUs.")
    ] = 2,
    http_port: Annotated[int | None, typer.Option(help="Triton's HTTP port, or the first.")] = None,
    grpc_port: Annotated[int | None, typer.Option(help="Triton's gRPC port, or the first.")] = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="Triton's metrics port, or the first.")
    ] = None,
    llm_port: Annotated[
        int,
        typer.Option(
            min=1,
            max=65533,
            help="The port of the LM's server, and the first of three without trtllm.",
        ),
    ] = 8000,
) -> None:
    """Run stages of the original's run scripts: from a checkpoint to a measured service.

    -1 environment, 0 download, 1 engine, 2 repository, 3 start, then clients and benchmarks. What
    is done is skipped. Servers that the last stage starts serve until Ctrl-C.
    """
    from cosyserve.deploy.stages import run as running
    from cosyserve.deploy.stages.deployment import SENTENCE, Deployment
    from cosyserve.deploy.stages.scripts import chosen
    from cosyserve.triton.process import Ports

    given = [port for port in (http_port, grpc_port, metrics_port) if port is not None]
    if given and len({*given}) < 3:
        raise InputError("give --http-port, --grpc-port and --metrics-port together, all different")
    deployment = Deployment(
        folder,
        flow.value,
        llm.value,
        hub=hub.value,
        trt_dtype=trt_dtype.value,
        settings=tuple(set_ or ()),
        reference_audio=reference_audio,
        reference_text=reference_text,
        target_text=target_text or SENTENCE,
        manifest=manifest,
        tokens=tokens,
        num_tasks=num_tasks,
        mode=mode.value,
        use_spk2info_cache=use_spk2info_cache,
        batch_sizes=tuple(batch_size or (16, 8, 4, 2, 1)),
        gpus=gpus,
        instances_per_gpu=instances_per_gpu,
        first_ports=Ports(*given) if given else None,
        llm_port=llm_port,
    )
    stages = chosen(deployment, stage, stop_stage)
    if dry_run:
        running.show(stages, print)
    else:
        running.run(stages, folder, lambda text: note.print(text, soft_wrap=True))


def download(
    source: Annotated[
        str, typer.Argument(help="A Hub name, a ModelScope name with 'ms:', or a file's URL.")
    ],
    to: Annotated[Path, typer.Option(help="The folder or file to make.")],
) -> None:
    """Download a published model into a folder of its own, or one file."""
    from cosyserve.deploy.download import download as fetch

    fresh = fetch(source, to, progress=note.is_terminal)
    note.print(f"{'downloaded' if fresh else 'there already'}: {to}", soft_wrap=True)
