"""`cosyserve deploy engine`: engines for other runtimes."""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cosyserve.cli.common import note
from cosyserve.cli.deploy.engine_flow import flow

engine = typer.Typer(no_args_is_help=True, help="Build engines for other runtimes.")
engine.command()(flow)


class EngineDtype(StrEnum):
    """A precision that TensorRT-LLM computes in."""

    AUTO = "auto"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"


class WeightOnly(StrEnum):
    """A precision of weights alone."""

    INT8 = "int8"
    INT4 = "int4"
    INT4_GPTQ = "int4_gptq"


class GemmPlugin(StrEnum):
    """A precision of TensorRT-LLM's own matrix products."""

    AUTO = "auto"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"
    DISABLE = "disable"


@engine.command()
def llm(
    model_dir: Annotated[
        Path,
        typer.Option(
            help="The speech LM in its Hugging Face form, of `cosyserve prepare --form hf`."
        ),
    ],
    output_dir: Annotated[Path, typer.Option(help="The folder of the checkpoint to make of it.")],
    engine_dir: Annotated[Path, typer.Option(help="The folder of the engine to build.")],
    dtype: Annotated[
        EngineDtype,
        typer.Option(help="The precision; auto is that of the weights, or float16 for float32."),
    ] = EngineDtype.AUTO,
    tp_size: Annotated[int, typer.Option(help="GPUs that share each layer.")] = 1,
    pp_size: Annotated[int, typer.Option(help="Groups of layers, each on GPUs of its own.")] = 1,
    cp_size: Annotated[int, typer.Option(help="GPUs that share a long context.")] = 1,
    use_weight_only: Annotated[
        bool, typer.Option("--use-weight-only", help="Quantize the weights, and nothing else.")
    ] = False,
    weight_only_precision: Annotated[
        WeightOnly | None, typer.Option(help="The precision of --use-weight-only, by default int8.")
    ] = None,
    smoothquant: Annotated[
        float | None,
        typer.Option(help="Quantize weights and activations to int8, with this alpha, e.g. 0.5."),
    ] = None,
    per_channel: Annotated[
        bool,
        typer.Option(
            "--per-channel", help="With --smoothquant, a scale for each channel of the weights."
        ),
    ] = False,
    per_token: Annotated[
        bool,
        typer.Option(
            "--per-token", help="With --smoothquant, a scale for each token, found while it runs."
        ),
    ] = False,
    int8_kv_cache: Annotated[
        bool, typer.Option("--int8-kv-cache", help="Keep keys and values in int8.")
    ] = False,
    per_group: Annotated[
        bool, typer.Option("--per-group", help="With int4_gptq, a scale for each group of weights.")
    ] = False,
    group_size: Annotated[
        int | None, typer.Option(help="Weights in a group of --per-group, by default 128.")
    ] = None,
    calib_dataset: Annotated[
        str | None,
        typer.Option(
            help="Texts for --smoothquant and --int8-kv-cache, a Hugging Face dataset or a folder."
        ),
    ] = None,
    load_model_on_cpu: Annotated[
        bool,
        typer.Option("--load-model-on-cpu", help="Load the weights into the memory of the host."),
    ] = False,
    use_parallel_embedding: Annotated[
        bool, typer.Option("--use-parallel-embedding", help="Split the embedding by --tp-size.")
    ] = False,
    embedding_sharding_dim: Annotated[
        int | None,
        typer.Option(help="How --use-parallel-embedding splits, 0 by ids and 1 by features."),
    ] = None,
    workers: Annotated[int, typer.Option(help="GPUs whose parts are made at the same time.")] = 1,
    max_batch_size: Annotated[
        int, typer.Option(help="Requests that the engine computes at once.")
    ] = 16,
    max_num_tokens: Annotated[int, typer.Option(help="Tokens of all requests in a step.")] = 32_768,
    gemm_plugin: Annotated[
        GemmPlugin | None,
        typer.Option(help="The precision of matrix products, by default --dtype."),
    ] = None,
    text: Annotated[
        str | None, typer.Option(help="The sentence that the engine has to say.")
    ] = None,
    speak: Annotated[
        Path | None,
        typer.Option(help="A model folder whose flow and vocoder make the sentence audible."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The wav file of --speak.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the commands, and run nothing.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Make folders again that are made already.")
    ] = False,
) -> None:
    """Build a TensorRT-LLM engine of the speech LM, and have it say a sentence."""
    import torch

    from cosyserve.deploy.engine.build import run, steps
    from cosyserve.deploy.engine.options import BuildOptions, ConvertOptions, check
    from cosyserve.deploy.engine.say import TEXT, SayOptions
    from cosyserve.deploy.engine.source import EngineSource

    convert = ConvertOptions(
        model_dir=model_dir,
        output_dir=output_dir,
        dtype=dtype.value,
        tp_size=tp_size,
        pp_size=pp_size,
        cp_size=cp_size,
        use_weight_only=use_weight_only,
        weight_only_precision=weight_only_precision,
        smoothquant=smoothquant,
        per_channel=per_channel,
        per_token=per_token,
        int8_kv_cache=int8_kv_cache,
        per_group=per_group,
        group_size=group_size,
        calib_dataset=calib_dataset,
        load_model_on_cpu=load_model_on_cpu,
        use_parallel_embedding=use_parallel_embedding,
        embedding_sharding_dim=embedding_sharding_dim,
        workers=workers,
    )
    build = BuildOptions(
        engine_dir=engine_dir,
        max_batch_size=max_batch_size,
        max_num_tokens=max_num_tokens,
        gemm_plugin=gemm_plugin,
    )
    say = SayOptions(text=TEXT if text is None else text, speak=speak, output=output)
    source = EngineSource.read(model_dir)
    check(convert, build, source, torch.cuda.device_count() or None)
    say.check()
    plan = steps(convert, build, say)
    if dry_run:
        for step in plan:
            print(shlex.join(step.command))
        return

    def report(text: str) -> None:
        note.print(text, soft_wrap=True)

    run(plan, source.digest(), force=force, report=report)
    report(f"written: {engine_dir}")
