"""`cosyserve bench tokens`: speech tokens into audio, without a speech LM."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from cosyserve.cli.client import UNUSED
from cosyserve.cli.common import WITHOUT_LM, closing, load_parts
from cosyserve.cli.options import DeviceOption, DtypeOption, setting
from cosyserve.errors import InputError
from cosyserve.settings import Settings


class Strategy(StrEnum):
    EQUAL = "equal"
    DOUBLING = "doubling"
    EXPONENTIAL = "exponential"  # the original's word for doubling


def tokens(
    file: Annotated[
        Path | None,
        typer.Argument(help="A file of speech tokens (.jsonl, .npy or a manifest)."),
    ] = None,
    model: Annotated[str | None, setting("model", "--model", "-m", "--model-dir")] = None,
    huggingface_dataset: Annotated[
        str,
        typer.Option(
            "--huggingface-dataset",
            "--dataset-name",
            help="A dataset of speech tokens on Hugging Face, where no file is given.",
        ),
    ] = "yuekai/seed_tts_cosy2",
    split_name: Annotated[
        str,
        typer.Option(
            "--split-name", "--huggingface-dataset-split", help="The split of the dataset."
        ),
    ] = "wenetspeech4tts",
    strategy: Annotated[
        Strategy,
        typer.Option(help="The growth of hops; exponential is another name for doubling."),
    ] = Strategy.EQUAL,
    chunk_size: Annotated[
        int, typer.Option(help="The tokens of a hop behind the first; doubling begins with it.")
    ] = 25,
    look_ahead: Annotated[
        int | None, typer.Option(help="The tokens a chunk looks ahead: the model's own number.")
    ] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="Every utterance is computed at once, not streamed.")
    ] = False,
    runs: Annotated[int, typer.Option(help="The number of runs; the last one counts.")] = 3,
    output_dir: Annotated[Path | None, typer.Option(help="The folder to write speech to.")] = None,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    batch_size: Annotated[int, typer.Option(help=UNUSED, hidden=True)] = 1,
    enable_trt: Annotated[bool, typer.Option("--enable-trt", help=UNUSED, hidden=True)] = False,
) -> None:
    """Turn speech tokens into audio, and count calls and seconds."""
    import asyncio

    from cosyserve.bench import offline as benches
    from cosyserve.engine.compute.hops import DOUBLING, EQUAL, hop_ends
    from cosyserve.engine.split.token2wav_service import Token2WavService

    source = benches.TokenDataset(huggingface_dataset, split_name)
    items = (benches.TokenFile(file) if file else source).items()
    settings = Settings.read(model=model, device=device, dtype=dtype)
    loaded = load_parts(settings, WITHOUT_LM)
    flow, vocoder = loaded.need_token2wav()
    if chunk_size < 1 or chunk_size % flow.grid:
        raise InputError(
            f"--chunk-size must be a multiple of {flow.grid}, got {chunk_size}: chunks are exact "
            "only where they end on the model's grid"
        )
    if look_ahead not in (None, flow.lookahead):
        raise InputError(
            f"--look-ahead must be {flow.lookahead}, got {look_ahead}: the model has learnt to see "
            "so many tokens ahead, and streams are exact only then"
        )
    growth = EQUAL if strategy is Strategy.EQUAL else DOUBLING
    ends = partial(hop_ends, grid=flow.grid, hop=chunk_size, growth=growth)
    streaming = None if whole else benches.Streaming(ends, flow.lookahead)
    utterances = [benches.utterance(loaded, item) for item in items]

    async def measure() -> list[benches.TokenTimes]:
        async with closing(Token2WavService(flow, vocoder)) as token2wav:
            return await benches.run_tokens(
                token2wav, utterances, streaming, runs=runs, folder=output_dir
            )

    Console().print(benches.tokens_table(asyncio.run(measure())))
