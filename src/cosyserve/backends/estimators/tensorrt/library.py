"""Which TensorRT is installed: NVIDIA's for data centres, or the one for RTX cards.

Their Python interfaces are the same as far as we need them. TensorRT builds on the GPU that runs
the engine; TensorRT-RTX also where there is none.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import torch

from cosyserve.errors import InputError

RTX = "tensorrt_rtx"
LIBRARIES = ("tensorrt", RTX)


@dataclass(frozen=True)
class TensorRT:
    name: str
    api: Any

    @property
    def version(self) -> str:
        return f"{self.name}-{self.api.__version__}"

    @property
    def logger(self) -> Any:
        return self.api.Logger(self.api.Logger.WARNING)

    def dtype(self, name: Any) -> torch.dtype:
        """A type of TensorRT's in torch."""
        known = {
            self.api.float32: torch.float32,
            self.api.float16: torch.float16,
            self.api.bfloat16: torch.bfloat16,
        }
        return known[name]

    def gpu(self, device: torch.device | None, capability: str = "") -> str:
        """What an engine is built for: a GPU, or for RTX all of a compute capability ("8.9")."""
        if self.name == RTX:
            if not capability:
                if device is None:
                    raise InputError("there is no GPU here: give --compute-capability, e.g. 8.9")
                capability = "{}.{}".format(*torch.cuda.get_device_capability(device))
            wanted = f"SM{capability.replace('.', '')}"
            if not hasattr(self.api.ComputeCapability, wanted):
                raise InputError(f"TensorRT-RTX builds nothing for compute capability {capability}")
            return wanted
        if capability:
            raise InputError(
                "--compute-capability is for TensorRT-RTX (pip install tensorrt-rtx): TensorRT "
                "builds for the GPU that it runs on"
            )
        if device is None:
            raise InputError(
                "TensorRT builds an engine on the GPU that is to run it, and there is none here; "
                "TensorRT-RTX (pip install tensorrt-rtx) builds without one"
            )
        return torch.cuda.get_device_name(device)


def find_tensorrt() -> TensorRT:
    """The first of the libraries that is installed."""
    for name in LIBRARIES:
        try:
            return TensorRT(name, importlib.import_module(name))
        except ModuleNotFoundError as error:
            if error.name != name:
                raise InputError(f"{name} can't be imported: {error}") from error
    raise InputError(
        "TensorRT is not installed: pip install tensorrt on a machine with a data centre's GPU, "
        "tensorrt-rtx with an RTX card or without any"
    )
