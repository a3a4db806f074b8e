"""A TensorRT without a GPU: engines are ONNX files that onnxruntime computes, tensors are found by
their addresses as TensorRT finds them.

It has the calls that cosyserve makes, with TensorRT's names, and refuses what TensorRT refuses.
"""

from __future__ import annotations

import ctypes
import pickle
from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto

from cosyserve.backends.estimators.tensorrt.library import TensorRT

NUMPY = {TensorProto.FLOAT: np.float32, TensorProto.FLOAT16: np.float16}


class Logger:
    WARNING = 2

    def __init__(self, level: int) -> None:
        assert level == self.WARNING


class Parser:
    num_errors = 1

    def __init__(self, network: SimpleNamespace, logger: Logger) -> None:
        self.network = network

    def parse(self, data: bytes) -> bool:
        self.network.onnx = data
        try:
            onnx.checker.check_model(data)
        except Exception:
            return False
        return True

    def get_error(self, number: int) -> SimpleNamespace:
        return SimpleNamespace(desc=lambda: "no ONNX")


class Profile:
    def __init__(self) -> None:
        self.shapes: dict[str, list[tuple[int, ...]]] = {}

    def set_shape(self, name: str, *shapes: tuple[int, ...]) -> None:
        smallest, usual, largest = shapes
        for sizes in zip(smallest, usual, largest, strict=True):
            assert list(sizes) == sorted(sizes)
        self.shapes[name] = list(shapes)


class Config:
    def __init__(self) -> None:
        self.profiles: list[Profile] = []
        self.workspace = 0

    def set_memory_pool_limit(self, pool: str, size: int) -> None:
        self.workspace = size

    def add_optimization_profile(self, profile: Profile) -> None:
        self.profiles.append(profile)


class Builder:
    def __init__(self, logger: Logger) -> None:
        pass

    def create_network(self, flags: int) -> SimpleNamespace:
        assert flags == 1 << 1  # strongly typed
        return SimpleNamespace(onnx=b"")

    def create_builder_config(self) -> Config:
        return Config()

    def create_optimization_profile(self) -> Profile:
        return Profile()

    def build_serialized_network(self, network: SimpleNamespace, config: Config) -> bytes:
        (profile,) = config.profiles
        return pickle.dumps((network.onnx, profile.shapes))


class Engine:
    def __init__(self, plan: bytes) -> None:
        data, self.shapes = pickle.loads(plan)
        graph = onnx.load_from_string(data).graph
        self.types = {
            value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)
        }
        self.session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        self.contexts: list[Context] = []

    def get_tensor_dtype(self, name: str) -> int:
        return self.types[name]

    def get_tensor_profile_shape(self, name: str, profile: int) -> list[tuple[int, ...]]:
        assert profile == 0
        return self.shapes[name]

    def create_execution_context(self) -> Context:
        self.contexts.append(Context(self))
        return self.contexts[-1]


class Context:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.inputs: dict[str, tuple[int, ...]] = {}
        self.addresses: dict[str, int] = {}
        self.runs: list[int] = []  # streams
        self.fails = False

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        smallest, _, largest = self.engine.shapes[name]
        self.inputs[name] = shape
        return all(a <= n <= b for a, n, b in zip(smallest, shape, largest, strict=True))

    def get_tensor_shape(self, name: str) -> list[int]:
        blank = {n: np.zeros(shape, self._dtype(n)) for n, shape in self.inputs.items()}
        (result,) = self.engine.session.run([name], blank)
        return list(result.shape)

    def _dtype(self, name: str) -> np.dtype[Any]:
        return np.dtype(NUMPY[self.engine.types[name]])

    def set_tensor_address(self, name: str, address: int) -> bool:
        assert address  # even where there is nothing
        self.addresses[name] = address
        return True

    def _tensor(self, name: str, shape: Sequence[int]) -> np.ndarray[Any, Any]:
        kind = self._dtype(name)
        size = int(np.prod(shape)) * kind.itemsize
        memory = (ctypes.c_char * size).from_address(self.addresses[name])
        return np.frombuffer(memory, kind).reshape(shape)

    def execute_async_v3(self, stream: int) -> bool:
        self.runs.append(stream)
        if self.fails:
            return False
        given = {name: self._tensor(name, shape) for name, shape in self.inputs.items()}
        names = [node.name for node in self.engine.session.get_outputs()]
        for name, result in zip(names, self.engine.session.run(names, given), strict=True):
            self._tensor(name, self.get_tensor_shape(name))[...] = result
        return True


class Runtime:
    def __init__(self, logger: Logger) -> None:
        pass

    def deserialize_cuda_engine(self, plan: bytes) -> Engine | None:
        try:
            return Engine(plan)
        except pickle.UnpicklingError:
            return None


class Stream:
    """A stream of CUDA's that knows what it waited for."""

    def __init__(self, number: int) -> None:
        self.cuda_stream = number
        self.waited: list[tuple[Stream, int]] = []
        self.events = 0

    def record_event(self) -> tuple[Self, int]:
        self.events += 1
        return self, self.events

    def wait_event(self, event: tuple[Stream, int]) -> None:
        self.waited.append(event)


API = {  # by their names in TensorRT
    "Builder": Builder,
    "IBuilderConfig": Config,
    "ICudaEngine": Engine,
    "IExecutionContext": Context,
    "IOptimizationProfile": Profile,
    "Logger": Logger,
    "OnnxParser": Parser,
    "Runtime": Runtime,
}


def stand_in(version: str = "10.13.3.9") -> TensorRT:
    api = SimpleNamespace(
        __version__=version,
        float32=TensorProto.FLOAT,
        float16=TensorProto.FLOAT16,
        bfloat16=TensorProto.BFLOAT16,
        Logger=Logger,
        Builder=Builder,
        OnnxParser=Parser,
        Runtime=Runtime,
        NetworkDefinitionCreationFlag=SimpleNamespace(STRONGLY_TYPED=1),
        MemoryPoolType=SimpleNamespace(WORKSPACE="workspace"),
    )
    return TensorRT("tensorrt", api)


def use_streams(monkeypatch: pytest.MonkeyPatch, gpu: str = "NVIDIA L20") -> list[Stream]:
    """Torch's current stream is the last of these."""
    streams = [Stream(1)]
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: streams[-1])
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: gpu)
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    return streams
