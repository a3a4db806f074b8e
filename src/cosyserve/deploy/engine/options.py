"""How the speech LM becomes a TensorRT-LLM engine: options, and which of them go together.

Names and defaults are those of TensorRT-LLM's own converter and of `trtllm-build`.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any, get_args, get_type_hints

from cosyserve.deploy.engine.source import EngineSource
from cosyserve.errors import InputError

DTYPES = ("auto", "float16", "bfloat16", "float32")
PRECISIONS = ("int8", "int4", "int4_gptq")
GROUP_SIZE = 128


@dataclass(frozen=True, kw_only=True)
class ConvertOptions:
    """How a checkpoint of TensorRT-LLM is made of the LM in its Hugging Face form."""

    model_dir: Path
    output_dir: Path
    dtype: str = "auto"
    tp_size: int = 1
    pp_size: int = 1
    cp_size: int = 1
    use_weight_only: bool = False
    weight_only_precision: str | None = None
    smoothquant: float | None = None
    per_channel: bool = False
    per_token: bool = False
    int8_kv_cache: bool = False
    per_group: bool = False
    group_size: int | None = None
    calib_dataset: str | None = None
    load_model_on_cpu: bool = False
    use_parallel_embedding: bool = False
    embedding_sharding_dim: int | None = None
    workers: int = 1

    @property
    def gpus(self) -> int:
        """That the engine runs on."""
        return self.tp_size * self.pp_size * self.cp_size

    @property
    def calibrates(self) -> bool:
        """Whether the model is run on texts, to see how large its numbers become."""
        return self.smoothquant is not None or self.int8_kv_cache

    def arguments(self) -> list[str]:
        """The options on a command line, as far as they differ from their defaults."""
        words: list[str] = []
        for option in fields(self):
            value = getattr(self, option.name)
            if value != option.default:
                flag = f"--{option.name.replace('_', '-')}"
                words += [flag] if value is True else [flag, str(value)]
        return words

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> ConvertOptions:
        """What `arguments` wrote."""
        parser = ArgumentParser("cosyserve.deploy.engine.convert", description=cls.__doc__)
        hints = get_type_hints(cls)
        for option in fields(cls):
            flag = f"--{option.name.replace('_', '-')}"
            kind: Any = next(iter(get_args(hints[option.name])), hints[option.name])
            if kind is bool:
                parser.add_argument(flag, action="store_true")
            elif option.default is MISSING:
                parser.add_argument(flag, type=kind, required=True)
            else:
                parser.add_argument(flag, type=kind, default=option.default)
        return cls(**vars(parser.parse_args(arguments)))


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """How `trtllm-build` makes an engine of the checkpoint."""

    engine_dir: Path
    max_batch_size: int = 16
    max_num_tokens: int = 32_768
    gemm_plugin: str | None = None  # None: the dtype


def check(
    convert: ConvertOptions, build: BuildOptions, source: EngineSource, gpus: int | None
) -> None:
    """Refuses options that make no sense, alone or together; `gpus`: of this machine, if known."""
    problems = chain(
        _values(convert, build),
        _quantization(convert, source),
        _parallelism(convert, source, gpus),
    )
    for problem in problems:
        raise InputError(problem)


def _values(convert: ConvertOptions, build: BuildOptions) -> Iterator[str]:
    sizes = ("tp_size", "pp_size", "cp_size", "workers", "group_size")
    numbers = {name: getattr(convert, name) for name in sizes}
    numbers |= {name: getattr(build, name) for name in ("max_batch_size", "max_num_tokens")}
    for name, number in numbers.items():
        if number is not None and number < 1:
            yield f"--{name.replace('_', '-')} must be at least 1, got {number}"
    choices: tuple[tuple[str, object, tuple[object, ...]], ...] = (
        ("dtype", convert.dtype, DTYPES),
        ("weight-only-precision", convert.weight_only_precision, (None, *PRECISIONS)),
        ("embedding-sharding-dim", convert.embedding_sharding_dim, (None, 0, 1)),
        ("gemm-plugin", build.gemm_plugin, (None, *DTYPES, "disable")),
    )
    for flag, value, allowed in choices:
        if value not in allowed:
            names = ", ".join(str(choice) for choice in allowed if choice is not None)
            yield f"--{flag} must be one of {names}, got {value!r}"
    if convert.smoothquant is not None and not 0 < convert.smoothquant <= 1:
        yield f"--smoothquant must be above 0 and at most 1, got {convert.smoothquant:g}"
    if build.max_num_tokens < build.max_batch_size:
        yield (
            f"--max-num-tokens {build.max_num_tokens} is less than one token for each of "
            f"--max-batch-size {build.max_batch_size} requests"
        )
    if convert.output_dir.absolute() == build.engine_dir.absolute():
        yield "--output-dir and --engine-dir must be two folders"


def _quantization(options: ConvertOptions, source: EngineSource) -> Iterator[str]:
    weight_only, smooth = options.use_weight_only, options.smoothquant is not None
    gptq = options.weight_only_precision == "int4_gptq"
    if weight_only and smooth:
        yield "--use-weight-only and --smoothquant quantize the same weights: choose one"
    if options.weight_only_precision and not weight_only:
        yield "--weight-only-precision has no effect without --use-weight-only"
    if weight_only and options.dtype == "float32":
        yield "--use-weight-only computes in 16 bits: choose another --dtype than float32"
    for flag, given in (("per-channel", options.per_channel), ("per-token", options.per_token)):
        if given and not smooth:
            yield f"--{flag} says how --smoothquant scales: give that, too"
    if gptq and not source.quantization:
        yield (
            f"--weight-only-precision int4_gptq reads weights that are quantized already, and "
            f"{source.config_file} has no quantization_config: quantize the model, or choose int4"
        )
    if source.quantization and not gptq:
        yield (
            f"{source.config_file}: the weights are quantized already "
            f"({source.quantization.method}): give --use-weight-only "
            "--weight-only-precision int4_gptq --per-group"
        )
    if gptq and not options.per_group:
        yield "--weight-only-precision int4_gptq has a scale for each group: give --per-group"
    if options.per_group and not gptq:
        yield "--per-group is for --weight-only-precision int4_gptq"
    if options.group_size is not None and not options.per_group:
        yield "--group-size has no effect without --per-group"
    if source.quantization and source.quantization.group_size != (options.group_size or GROUP_SIZE):
        yield (
            f"{source.config_file}: groups have {source.quantization.group_size} weights: give "
            f"--group-size {source.quantization.group_size}"
        )
    if source.quantization and source.quantization.reordered:
        yield f"{source.config_file}: TensorRT-LLM can't read GPTQ weights with desc_act"
    if gptq and options.int8_kv_cache:
        yield "--int8-kv-cache needs a calibration, which weights of int4_gptq can't have"
    if options.calibrates and options.calib_dataset is None:
        yield (
            "--smoothquant and --int8-kv-cache calibrate the model on texts: give --calib-dataset "
            "NAME_OR_FOLDER (the original's is ccdv/cnn_dailymail)"
        )
    if options.calib_dataset is not None and not options.calibrates:
        yield "--calib-dataset is for --smoothquant and --int8-kv-cache"
    if options.calibrates and options.load_model_on_cpu:
        yield "--load-model-on-cpu: a calibration runs the model on a GPU"


def _parallelism(options: ConvertOptions, source: EngineSource, gpus: int | None) -> Iterator[str]:
    lm, tp = source.lm, options.tp_size
    splits = [
        size
        for size in range(1, lm.heads + 1)
        if lm.heads % size == 0 and (lm.kv_heads % size == 0 or size % lm.kv_heads == 0)
    ]
    if tp not in splits:
        yield (
            f"--tp-size {tp}: {lm.heads} heads with {lm.kv_heads} of keys and values can be split "
            f"by {', '.join(map(str, splits))}"
        )
    if options.pp_size > lm.layers:
        yield f"--pp-size {options.pp_size}: the LM has {lm.layers} layers"
    if options.cp_size > 1 and options.calibrates:
        yield "--cp-size: a model is calibrated without context parallelism"
    if gpus is not None and options.gpus > gpus:
        yield (
            f"--tp-size {tp} × --pp-size {options.pp_size} × --cp-size {options.cp_size} are "
            f"{options.gpus} GPUs, and this machine has {gpus}"
        )
    if options.use_parallel_embedding and tp == 1:
        yield "--use-parallel-embedding splits the table by --tp-size, which is 1"
    if options.embedding_sharding_dim is not None and not options.use_parallel_embedding:
        yield "--embedding-sharding-dim has no effect without --use-parallel-embedding"
