"""What goes wrong on machines that serve speech: what one sees of it, and what to do.

`docs/troubleshooting.md` has the same table.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Trouble:
    seen: str
    fix: str


NO_DRIVER = Trouble(
    "torch was built for CUDA but sees no GPU",
    "run `nvidia-smi`; if it fails, install NVIDIA's driver; start a container with `--gpus all`",
)
OLD_DRIVER = Trouble(
    "the driver is older than the CUDA version that torch was built for",
    "update NVIDIA's driver, or install a torch that was built for an older CUDA",
)
FULL_GPU = Trouble(
    "less than 7 GiB of a GPU are free, which CosyVoice2-0.5B takes with 60 slots",
    "end what `nvidia-smi` shows there, or take a GPU of 8 GiB (docs/stages.md, What it needs)",
)
SMALL_SHM = Trouble(
    "/dev/shm is smaller than 256 MiB, and Triton's Python models die at their start",
    "start the container with `--shm-size 1g` (Compose: `shm_size: 1gb`)",
)
OLD_REGIONS = Trouble(
    "/dev/shm holds regions of a Triton server that is gone, and a new one fails with `boost`",
    "`rm -f /dev/shm/cosyserve_* /dev/shm/triton_python_*` while no tritonserver runs",
)
FULL_DISK = Trouble(
    "less than 8 GiB are free where models are kept",
    "make room, or set COSYSERVE_HOME (HF_HOME, MODELSCOPE_CACHE for downloads) to another disk",
)
TAKEN_PORT = Trouble(
    "a port that a server wants is taken",
    "`ss -ltnp` says by whom; end that, or give another: `--port`, `--http-port`, `--grpc-port`",
)
NO_TRITON = Trouble(
    "there is no tritonserver here",
    "run in a Triton container, or install the extra `triton` of this package",
)
TRITON_NOT_READY = Trouble(
    "a Triton server answers, but is not ready",
    "its log names the model that fails; `cosyserve deploy triton --check REPOSITORY` says why",
)
OTHER_TRTLLM = Trouble(
    "an engine was built by another version of TensorRT-LLM than the one here",
    "build it again: `cosyserve deploy engine llm … --force`",
)
OTHER_GPU = Trouble(
    "an engine was built for another GPU",
    "build it again on this machine: `cosyserve deploy engine llm … --force`",
)
SLOW_AUDIO = Trouble(
    "the first audio takes more than a second",
    "choose a GPU (`--device cuda`), end other work, or set COSYSERVE_THREADS to the idle cores",
)

# What no examination finds, but users meet.
OTHERS = (
    Trouble(
        "`status 429`, code `overloaded`",
        "more ask than can be served: wait for `Retry-After`, or see `cosyserve deploy plan`",
    ),
    Trouble(
        "a client of gRPC gets `UNIMPLEMENTED` or no answer",
        "it asks the HTTP port: 8000 is HTTP, 8001 gRPC, 8002 metrics",
    ),
    Trouble(
        "Triton: `doesn't support models with decoupled transaction policy`",
        "HTTP can't ask a model that streams: ask `cosyvoice2_offline`, or use gRPC",
    ),
    Trouble(
        "speech repeats itself or never ends, with an LLM server",
        "it has no repetition-aware sampling: set its temperature to 0.8, its penalty to 1.1",
    ),
    Trouble(
        "speech in a cloned voice begins with words of the recording",
        "the words that were given for the recording are not those in it: give them exactly",
    ),
)
