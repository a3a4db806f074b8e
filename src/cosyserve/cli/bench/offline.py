"""`cosyserve bench offline`: texts to speech in batches, with one LM back end or several."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from cosyserve.choices import LLMSampling
from cosyserve.cli.bench.offline_model import (
    LMOptions,
    check_backends,
    load_speaker,
    offline_model,
    open_backend,
)
from cosyserve.cli.client import UNUSED
from cosyserve.cli.common import closing
from cosyserve.cli.options import DeviceOption, DtypeOption, numbers, setting, words
from cosyserve.errors import InputError
from cosyserve.settings import Settings

if TYPE_CHECKING:
    from cosyserve.backends.protocols import LMBackend, Token2WavBackend
    from cosyserve.bench.items import Reference, Source
    from cosyserve.bench.offline import OfflineTimes

    Rows = list[tuple[str, int, OfflineTimes]]

MAX_TOKENS = 2048  # of an utterance, as the original asks for


def offline(
    context: typer.Context,
    backend: Annotated[
        list[str] | None,
        typer.Option(
            help="The LM's runtimes: ours, hf, trtllm, vllm, openai (or trtllm-serve); "
            "with commas or repeated."
        ),
    ] = None,
    batch_size: Annotated[
        list[str] | None,
        typer.Option(help="The numbers of utterances that the LM has at once, e.g. 16,8,4,2,1."),
    ] = None,
    model: Annotated[str | None, setting("model", "--model", "-m", "--token2wav-path")] = None,
    llm_model_name_or_path: Annotated[
        Path | None,
        typer.Option(help="The folder of the LM and its tokenizer; by default the model's own."),
    ] = None,
    engine_dir: Annotated[
        Path | None, typer.Option(help="The TensorRT-LLM engine of the back end trtllm.")
    ] = None,
    openai_api_base: Annotated[
        str, typer.Option(help="The LLM server of the back end openai.")
    ] = "http://localhost:8000/v1",
    openai_model_name: Annotated[
        str, typer.Option(help="The name under which that server has the LM.")
    ] = "trt_engines_bfloat16",
    token2wav_batch_size: Annotated[
        int, typer.Option(help="The number of utterances that flow and vocoder have at once.")
    ] = 1,
    top_p: Annotated[
        float, typer.Option(help="The nucleus of the LM's draws; our LM has its own sampling.")
    ] = 0.95,
    temperature: Annotated[
        float, typer.Option(help="The temperature of the LM's draws; our LM has its own.")
    ] = 0.8,
    top_k: Annotated[
        int, typer.Option(help="The most likely tokens to draw from; our LM has its own number.")
    ] = 50,
    kv_cache_free_gpu_memory_fraction: Annotated[
        float, typer.Option(help="The share of free GPU memory for TensorRT-LLM's cache.")
    ] = 0.6,
    runs: Annotated[int, typer.Option(help="The number of runs; the last one counts.")] = 3,
    manifest_path: Annotated[
        Path | None,
        typer.Option(help="A file of texts to speak, in lines of id|prompt_text|prompt_wav|text."),
    ] = None,
    huggingface_dataset: Annotated[
        str,
        typer.Option(help="A dataset of texts on Hugging Face; by default the original's two."),
    ] = "",
    split_name: Annotated[
        str, typer.Option(help="The split of the dataset; without one, built-in sentences.")
    ] = "",
    language: Annotated[
        str, typer.Option(help="The language of the built-in sentences, en or zh; default both.")
    ] = "",
    prompt_speech_path: Annotated[
        Path | None, typer.Option(help="A recording whose voice is to speak all texts.")
    ] = None,
    prompt_text: Annotated[str, typer.Option(help="The words of that recording.")] = "",
    output_dir: Annotated[
        Path | None, typer.Option(help="The folder to write speech and log.txt to.")
    ] = None,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    num_workers: Annotated[int, typer.Option(help=UNUSED, hidden=True)] = 0,
    prefetch: Annotated[int | None, typer.Option(help=UNUSED, hidden=True)] = None,
) -> None:
    """Speak texts in batches and say what LM and token2wav take of the time."""
    import asyncio

    from cosyserve.bench import offline as benches
    from cosyserve.engine.split.token2wav_service import Token2WavService

    sizes = numbers("--batch-size", batch_size) or (1,)
    options = LMOptions(
        folder=llm_model_name_or_path,
        engine_dir=engine_dir,
        url=openai_api_base,
        served_name=openai_model_name,
        sampling=LLMSampling(temperature, top_p, top_k, max_tokens=MAX_TOKENS),
        kv_cache_fraction=kv_cache_free_gpu_memory_fraction,
    )
    backends = check_backends(words(backend) or ("ours",), options)
    usual = benches.OfflineRun(
        _source(manifest_path, huggingface_dataset, split_name, language),
        token2wav_batch_size=token2wav_batch_size,
        reference=_reference(prompt_speech_path, prompt_text),
        runs=runs,
        folder=output_dir,
    )
    settings = Settings.read(model=model, device=device, dtype=dtype)
    speaker = load_speaker(settings, llm_model_name_or_path)

    async def measure(lm: LMBackend, token2wav: Token2WavBackend, name: str) -> Rows:
        rows = []
        for size in sizes:
            run = replace(usual, batch_size=size)
            if output_dir is not None and len(backends) * len(sizes) > 1:
                run = replace(run, folder=output_dir / f"{name}-{size}")
            times = await benches.run_offline(offline_model(speaker, lm, token2wav), run)
            if run.folder is not None:
                args = context.params | {"backend": name, "batch_size": size}
                benches.write_log(args, times, run.folder)
            rows.append((name, size, times))
        return rows

    async def measure_all() -> Rows:
        rows: Rows = []
        async with closing(Token2WavService(*speaker.need_token2wav())) as token2wav:
            for name in backends:
                async with closing(open_backend(name, settings, options, max(sizes))) as lm:
                    rows += await measure(lm, token2wav, name)
        return rows

    Console().print(benches.offline_table(asyncio.run(measure_all())))


def _source(manifest: Path | None, dataset: str, split: str, language: str) -> Source:
    from cosyserve.bench import HubDataset, Manifest, Sentences

    if manifest is not None:
        return Manifest(manifest)
    if dataset or split:
        usual = "yuekai/CV3-Eval" if "zero" in split else "yuekai/seed_tts_cosy2"
        return HubDataset(dataset or usual, split or "wenetspeech4tts")
    return Sentences(language)


def _reference(recording: Path | None, text: str) -> Reference | None:
    from cosyserve.bench.items import Reference

    if recording is not None:
        return Reference.of(recording, text)
    if text:
        raise InputError("--prompt-text are the words of --prompt-speech-path: give both")
    return None
