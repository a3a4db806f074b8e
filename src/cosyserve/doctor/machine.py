"""This machine: Python, processors, GPUs and their driver, memory that processes share, disks."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from cosyserve.audio import AudioFormat
from cosyserve.deploy.nvidia_smi import nvidia_smi
from cosyserve.doctor import troubles
from cosyserve.doctor.finding import Finding
from cosyserve.triton.process import REGION_PREFIX

PACKAGES = ("torch", "numpy", "onnxruntime", "tokenizers", "safetensors", "av", "soxr", "wetext")
OPTIONAL = ("tensorrt", "tensorrt_llm", "vllm", "transformers")
ENCODERS = {AudioFormat.MP3: "libmp3lame", AudioFormat.OPUS: "libopus", AudioFormat.AAC: "aac"}
REGIONS = ("triton_python_backend_shm_region_*", f"{REGION_PREFIX}*")  # Triton's own name, ours
GIB = 2**30
MIN_SHM, MIN_DISK, MIN_GPU = GIB // 4, 8 * GIB, 7 * GIB


def machine(home: Path, shm: Path = Path("/dev/shm")) -> list[Finding]:
    return [
        Finding("python", platform.python_version()),
        *processors(),
        *shared_memory(shm),
        disk(home),
        *packages(),
        *codecs(),
    ]


def processors() -> Iterator[Finding]:
    import torch

    from cosyserve.models.kernels import kernels_of

    threads = torch.get_num_threads()
    yield Finding("cpu", f"{os.cpu_count()} cores, torch uses {threads} threads")
    driver = nvidia_smi("driver_version")
    if driver:
        yield Finding("driver", driver)
    if torch.version.cuda:
        yield Finding("CUDA", f"{torch.version.cuda}, with which torch was built")
    for index in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(index)
        free, total = torch.cuda.mem_get_info(index)
        detail = f"{card.name}, {free / GIB:.1f} of {total / GIB:.1f} GiB free"
        advice = troubles.FULL_GPU.fix if free < MIN_GPU else ""
        yield Finding(f"cuda:{index}", detail, None if advice else True, advice)
        yield Finding("kernels", f"cuda:{index}: {kernels_of(torch.device('cuda', index))}")
    if not torch.cuda.device_count():
        yield no_gpu(torch.version.cuda, driver)


def no_gpu(cuda: str | None, driver: str) -> Finding:
    """Why torch, built for this version of CUDA, has no GPU."""
    detail = f"none that torch ({cuda or 'CPU-only'} build) can use: running on the CPU"
    trouble = troubles.OLD_DRIVER if driver else troubles.NO_DRIVER
    return Finding("gpu", detail, None, trouble.fix if cuda else "")


def shared_memory(shm: Path) -> Iterator[Finding]:
    if not shm.is_dir():
        return
    size = shutil.disk_usage(shm).total
    advice = troubles.SMALL_SHM.fix if size < MIN_SHM else ""
    good = None if advice else True
    yield Finding("shared memory", f"{shm}: {size / GIB:.2f} GiB", good, advice)
    regions = sum(len(list(shm.glob(name))) for name in REGIONS)
    if regions and not _running("tritonserver"):
        detail = f"{regions} regions of a Triton server that is gone"
        yield Finding("shared memory", detail, None, troubles.OLD_REGIONS.fix)


def _running(program: str) -> bool:
    for file in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):  # processes come and go
            if file.read_text("utf-8", "replace").strip() == program:
                return True
    return False


def disk(home: Path) -> Finding:
    place = next(folder for folder in (home, *home.absolute().parents) if folder.exists())
    free = shutil.disk_usage(place).free
    advice = troubles.FULL_DISK.fix if free < MIN_DISK else ""
    good = None if advice else True
    return Finding("disk", f"{place}: {free / GIB:.1f} GiB free", good, advice)


def packages() -> Iterator[Finding]:
    for name in PACKAGES:
        installed = installed_version(name)
        advice = "" if installed else f"pip install {name}"
        yield Finding(name, installed or "not installed", bool(installed), advice)
    for name in OPTIONAL:
        if installed := installed_version(name):
            yield Finding(name, installed)


def installed_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def codecs() -> Iterator[Finding]:
    from av.codec import codecs_available

    for kind, codec in ENCODERS.items():
        there = codec in codecs_available
        advice = "" if there else f"PyAV lacks {codec}: pip install --upgrade av"
        yield Finding(str(kind), codec, there, advice)
