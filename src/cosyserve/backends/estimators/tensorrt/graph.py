"""A graph as a TensorRT engine on a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from queue import LifoQueue
from typing import Any

import torch
from torch import Tensor

from cosyserve.backends.estimators.graphs import FRAMES, PAST, ROWS, NetworkGraph
from cosyserve.backends.estimators.tensorrt.library import TensorRT
from cosyserve.errors import CheckpointError, CosyError, InputError

SIZED = (ROWS, FRAMES, PAST)
CONTEXTS = 2  # first chunks and later ones have a stream each


@dataclass
class Context:
    """An execution context, with the memory of one call."""

    execution: Any
    done: torch.cuda.Event | None = None  # its last call


class ContextPool:
    """A few contexts for calls from any thread, in any stream."""

    def __init__(self, engine: Any, count: int, name: str) -> None:
        self._free: LifoQueue[Context] = LifoQueue()
        for _ in range(count):
            execution = engine.create_execution_context()
            if execution is None:
                raise CosyError(f"the GPU has no memory for the engine {name!r}")
            self._free.put(Context(execution))

    @contextmanager
    def lend(self) -> Iterator[Context]:
        """A context that nobody else has, as soon as there is one."""
        context = self._free.get()
        try:
            yield context
        finally:
            self._free.put(context)

    def __len__(self) -> int:
        """How many are free."""
        return self._free.qsize()


class TensorRTGraph:
    """Implements `Graph`. A call is queued in the stream of its caller, and nobody waits for it."""

    def __init__(
        self,
        library: TensorRT,
        plan: bytes,
        graph: NetworkGraph,
        device: torch.device,
        contexts: int = CONTEXTS,
    ) -> None:
        """`graph` says which axes there are; its weights are the engine's own."""
        self.device, self._name, self._too_long = device, graph.name, graph.too_long
        self._inputs, self._outputs = dict(graph.inputs), dict(graph.outputs)
        self._runtime = library.api.Runtime(library.logger)  # which has to outlive the engine
        with torch.cuda.device(device):
            self._engine = self._runtime.deserialize_cuda_engine(plan)
            if self._engine is None:
                raise CheckpointError("TensorRT can't load the engine: it says why above")
            self.contexts = ContextPool(self._engine, contexts, graph.name)
        names = (*self._inputs, *self._outputs)
        self._types = {name: library.dtype(self._engine.get_tensor_dtype(name)) for name in names}
        self._largest = self._profile()
        self._nothing = torch.zeros(1, device=device)  # where tensors without elements lie

    def _profile(self) -> dict[str, int]:
        """The largest size of each axis."""
        largest: dict[str, int] = {}
        for name, axes in self._inputs.items():
            shape = self._engine.get_tensor_profile_shape(name, 0)[2]
            largest |= {axis: size for axis, size in zip(axes, shape, strict=True) if axis in SIZED}
        return largest

    def __call__(self, inputs: Mapping[str, Tensor]) -> list[Tensor]:
        self._check(inputs)
        rows, most = self._rows(inputs), self._largest[ROWS]
        parts = [
            self._run({name: self._part(name, inputs[name], row, most) for name in self._inputs})
            for row in range(0, rows, most)
        ]
        if len(parts) == 1:
            return parts[0]
        places = [axes.index(ROWS) for axes in self._outputs.values()]
        return [torch.cat(of, at) for of, at in zip(zip(*parts, strict=True), places, strict=True)]

    def _rows(self, inputs: Mapping[str, Tensor]) -> int:
        name, axes = next(iter(self._inputs.items()))
        return inputs[name].shape[axes.index(ROWS)]

    def _part(self, name: str, tensor: Tensor, row: int, most: int) -> Tensor:
        place = self._inputs[name].index(ROWS)
        return tensor.narrow(place, row, min(most, tensor.shape[place] - row))

    def _check(self, inputs: Mapping[str, Tensor]) -> None:
        for name, axes in self._inputs.items():
            for axis, size in zip(axes, inputs[name].shape, strict=True):
                if axis in (FRAMES, PAST) and size > self._largest[axis]:
                    raise InputError(self._too_long(size, self._largest[axis]))

    def _run(self, inputs: Mapping[str, Tensor]) -> list[Tensor]:
        given = {name: part.to(self._types[name]).contiguous() for name, part in inputs.items()}
        with self.contexts.lend() as context, torch.cuda.device(self.device):
            execution, stream = context.execution, torch.cuda.current_stream(self.device)
            for name, tensor in given.items():
                if not execution.set_input_shape(name, tuple(tensor.shape)):
                    raise CosyError(f"{self._name!r} takes no {name} of {list(tensor.shape)}")
            outputs = [
                torch.empty(
                    tuple(execution.get_tensor_shape(name)),
                    dtype=self._types[name],
                    device=self.device,
                )
                for name in self._outputs
            ]
            for name, tensor in (*given.items(), *zip(self._outputs, outputs, strict=True)):
                execution.set_tensor_address(
                    name, (tensor if tensor.numel() else self._nothing).data_ptr()
                )
            if context.done is not None:  # in another stream, perhaps
                stream.wait_event(context.done)
            queued = execution.execute_async_v3(stream.cuda_stream)
            context.done = stream.record_event()
        if not queued:
            raise CosyError(f"TensorRT can't compute {self._name!r}: it says why above")
        return outputs
