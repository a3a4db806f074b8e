"""`cosyserve deploy plan`: what so many GPUs can serve, and what runs where."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from cosyserve.cli.deploy.run import FlowName, LLMName

MOST = 100_000  # a program is listed for every GPU


def plan(
    gpus: Annotated[int, typer.Option(min=1, max=MOST, help="The number of GPUs at hand.")],
    gpu: Annotated[str, typer.Option(help="Their kind, as h200 or l20.")],
    streams: Annotated[int, typer.Option(min=1, max=MOST, help="The listeners at once.")],
    first_audio_ms: Annotated[
        float, typer.Option(min=1, help="The longest time until they hear something.")
    ],
    flow: Annotated[FlowName, typer.Option(help="The flow: unet or dit.")] = FlowName.UNET,
    llm: Annotated[
        LLMName, typer.Option(help="What computes the LM: ours, or TensorRT-LLM.")
    ] = LLMName.OURS,
    model: Annotated[
        Path,
        typer.Option(help="The model's folder; with --llm trtllm, the folder of `deploy run`."),
    ] = Path("native"),
    out: Annotated[
        Path | None, typer.Option(help="The folder to write plan.json and start.sh to.")
    ] = None,
) -> None:
    """Plan a deployment from measured figures, or say why there is none."""
    from cosyserve.deploy.plan.placement import placed, write
    from cosyserve.deploy.plan.plan import Demand
    from cosyserve.deploy.plan.plan import plan as planned

    demand = Demand(gpus, gpu.lower(), flow.value, llm.value, streams, first_audio_ms)
    chosen = planned(demand)
    programs = placed(chosen, model)
    figure, console = chosen.figure, Console(highlight=False)
    table = Table("GPU", "program", "ports", "memory", box=None)
    for one in programs:
        row = (", ".join(map(str, one.gpus)), one.what, ", ".join(map(str, one.ports)), one.memory)
        table.add_row(*row)
    console.print(
        f"{chosen.capacity} streams on {chosen.gpus} of {gpus} GPUs ({figure.layout}): "
        f"{figure.streams} on each set were measured, first audio after "
        f"{figure.first_audio_ms:g} ms ({figure.statistic}); {figure.tasks_per_gpu:g} concurrent "
        "tasks per GPU",
        soft_wrap=True,
    )
    console.print(f"source: {figure.source}", soft_wrap=True)
    console.print(table)
    for one in programs:
        console.print(str(one.command), soft_wrap=True, markup=False)
    if out is not None:
        write(chosen, programs, out)
