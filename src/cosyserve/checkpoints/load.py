"""Loads a model by its name or folder, onto a device and in a precision."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

import torch

from cosyserve.checkpoints import published, testmodel
from cosyserve.checkpoints.model import Model, assemble
from cosyserve.checkpoints.parts import MODULES
from cosyserve.choices import LM_FILE, known_device
from cosyserve.errors import InputError
from cosyserve.models.kernels import BFLOAT16, gpu

SHIPPED = "nano"  # the small model inside the package
SHIPPED_FOLDER = Path(__file__).parents[1] / SHIPPED

# oneDNN computes a CPU's convolutions and keeps what it compiled for each length, by default of
# 1024. An utterance has 73 and its last length seldom comes again: this many hold the lengths that
# every stream begins with; more would only take memory, and break up what lies between.
CONVOLUTIONS = "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "256"


def load_model(
    model: str | Path = SHIPPED,
    *,
    device: str = "auto",
    token2wav_devices: Sequence[str] = (),
    dtype: str = "auto",
    only: Collection[str] | None = None,
    lm_file: str = LM_FILE,
) -> Model:
    """Loads `model`: a folder, `nano` or `test`; perhaps the weights of `only` some parts.

    Flow and vocoder may have devices of their own; a CosyVoice folder may have several LMs.
    """
    place, token2wav = device_of(device), [device_of(name) for name in token2wav_devices]
    if any(each.type == "cpu" for each in (place, *token2wav)):
        os.environ.setdefault(*CONVOLUTIONS)
    if dtype not in ("auto", "float32", "bfloat16", "float16", "int8"):
        raise InputError(f"dtype must be auto, float32, bfloat16, float16 or int8, got {dtype!r}")
    if str(model) == testmodel.NAME:
        if lm_file != LM_FILE:
            raise InputError(
                f"the model {testmodel.NAME} has no file {lm_file!r:.40}: leave it out"
            )
        parts = testmodel.random_parts()
        return assemble(parts if only is None else parts.only(only), place, token2wav)
    precision = None if dtype == "auto" else getattr(torch, dtype)
    return load_folder(model_folder(model), place, precision, only, token2wav, lm_file)


def model_folder(model: str | Path) -> Path:
    """The folder of a model: inside the package for `nano`, else the one it names."""
    return SHIPPED_FOLDER if str(model) == SHIPPED else Path(model)


def load_folder(
    folder: Path,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
    only: Collection[str] | None = None,
    token2wav_devices: Sequence[torch.device | str] = (),
    lm_file: str = LM_FILE,
) -> Model:
    """Loads a native or a published folder, perhaps the weights of `only` some parts.

    `dtype` is that of LM and flow. None: on a GPU as `gpu_dtype`; on a CPU as stored, but no
    float16, which it computes slowly. int8: as None, but the LM's weights for few rows at a time in
    eight bits.
    """
    on_gpu, eight_bits = torch.device(device).type == "cuda", dtype is torch.int8
    if eight_bits and not on_gpu:
        raise InputError("dtype int8 is for a GPU: choose another, or device cuda")
    parts = published.read(folder, tuple(MODULES) if only is None else only, lm_file=lm_file)
    stored = {tensor.dtype for state in parts.states.values() for tensor in state.values()}
    if eight_bits or (dtype is None and (on_gpu or torch.float16 in stored)):
        dtype = gpu_dtype(torch.device(device)) if on_gpu else torch.float32
    model = assemble(
        parts if dtype is None else parts.cast(dtype), device, token2wav_devices, str(folder)
    )
    if model.lm:
        model.lm.eight_bits = eight_bits
    return model


def gpu_dtype(device: torch.device) -> torch.dtype:
    """bfloat16, which holds whatever float32 holds; float32 on GPUs from before it."""
    found = gpu(device)
    return torch.bfloat16 if found and found.capability >= BFLOAT16 else torch.float32


def device_of(name: str) -> torch.device:
    """The device with this name; `auto`: the first GPU, or the CPU where there is none."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(known_device(name))
    except ValueError as error:
        raise InputError(str(error)) from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(
            f"device {name} is asked for, but torch sees {torch.cuda.device_count()} CUDA devices"
        )
    if device.type == "cuda" and device.index is None:  # one name for each GPU
        return torch.device("cuda", torch.cuda.current_device())
    return device
