"""CUDA streams and graphs: where work is queued in order, on a GPU or in this thread on a CPU.

The one place that knows the difference. On a GPU nothing here waits for the device except
`HostCopy.get`, and `Staging` for a host that is two batches ahead; work on static buffers can be
captured as a CUDA graph and replayed as one launch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Generic, TypeVar
from weakref import WeakMethod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cosyserve.models.kernels import kernels_supported

WARM_RUNS = 1  # before a capture: libraries choose their kernels and caches are filled
URGENT, SOON, LATER = -2, -1, 0  # priorities of CUDA streams: the lowest goes first
STAGED = 1 << 20  # bytes of pinned memory: each half has room for all numbers of three batches
ALIGNED = 64  # bytes: where numbers of any type may begin
RESERVED = [1 << 20] * 64 + [20 << 20] * 8  # bytes of blocks for sessions' own tensors

K = TypeVar("K", bound=Hashable)


class DeviceQueue:
    def __init__(
        self, device: torch.device, priority: int = LATER, *, static: bool | None = None
    ) -> None:
        """`static`: shapes are rounded up to those that could be captured, and results are read one
        step late; it is what a GPU wants (None: where there is one)."""
        self.device = device
        on_gpu = device.type == "cuda"
        self.static = on_gpu if static is None else static
        self._stream: torch.cuda.Stream | None = None
        self._pool = torch.cuda.graph_pool_handle() if on_gpu else None
        if on_gpu:
            self._stream = torch.cuda.Stream(device, priority)  # type: ignore[no-untyped-call]
            # Weights may still be on their way.
            self._stream.wait_stream(torch.cuda.current_stream(device))
            pinned = torch.empty(2, STAGED // 2, dtype=torch.uint8, pin_memory=True)
            self._staging = Staging(pinned, partial(Mark, self._stream))

    def use(self) -> AbstractContextManager[object]:
        """A context: what is computed inside goes to this queue."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def fit(self, size: int, sizes: Sequence[int]) -> int:
        """The size to compute with: where shapes are static, the next of the rising sizes."""
        at = bisect_left(sizes, size)
        return sizes[at] if self.static and at < len(sizes) else size

    def write(self, target: Tensor, values: Sequence[object] | NDArray[np.int64]) -> None:
        """Copies numbers of the host into a buffer. Integers of more than 64 bits are an error:
        numpy would round them all."""
        kind = np.float64 if target.is_floating_point() else np.int64
        source = torch.as_tensor(np.asarray(values, kind), dtype=target.dtype)
        if self._stream is not None:
            source = self._staging.pinned(source)
        target.copy_(source, non_blocking=True)

    def read(self, *tensors: Tensor) -> HostCopy:
        """A copy of what the tensors hold at this point of the queue."""
        return HostCopy(tensors, self._stream)

    def mark(self) -> Mark:
        """This point of the queue."""
        return Mark(self._stream)

    def capture_all(self, runs: Mapping[K, Callable[[], None]]) -> dict[K, Callable[[], None]]:
        """Each of them captured; their kernels are compiled before, all together."""
        if self._stream is not None and kernels_supported(self.device):
            from cosyserve.models.kernels.launch import only_compiled

            with torch.cuda.stream(self._stream), only_compiled():
                for run in runs.values():
                    run()
        return {key: self.capture(run) for key, run in runs.items()}

    def capture(self, run: Callable[[], None]) -> Callable[[], None]:
        """The same work as one launch. It may touch static buffers only; what it allocates lies in
        the queue's own pool and is another capture's the moment it is over. It is run meanwhile, on
        whatever the buffers hold."""
        if self._stream is None:
            run()
            return run
        with torch.cuda.stream(self._stream):
            for _ in range(WARM_RUNS):
                run()
        self._stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(
            graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
        ):
            run()
        replay: Callable[[], None] = graph.replay
        return replay

    def reserve(self) -> None:
        """Allocates and frees what sessions will need, so that no other process can have it: until
        the next capture, memory freed in a queue stays with it."""
        if self._stream is not None:
            with torch.cuda.stream(self._stream):
                blocks = [torch.empty(n, dtype=torch.uint8, device=self.device) for n in RESERVED]
            del blocks

    def wait(self) -> None:
        """Blocks until all that was queued is done."""
        if self._stream is not None:
            self._stream.synchronize()


class CapturedGraphs(Generic[K]):
    """Work by shape: replayed where it was captured, computed step by step where not.

    The work is a method of the object that holds these graphs and is kept weakly: a circle would
    keep its caches and buffers until Python looks for garbage."""

    def __init__(self, queue: DeviceQueue, compute: Callable[[K], None]) -> None:
        self.queue = queue
        self._method = WeakMethod(compute)
        self._captured: dict[K, Callable[[], None]] = {}

    def capture(self, shapes: Iterable[K]) -> None:
        runs = {shape: partial(self._compute, shape) for shape in shapes}
        self._captured = self.queue.capture_all(runs)

    def __len__(self) -> int:
        return len(self._captured)

    def run(self, shape: K) -> None:
        replay = self._captured.get(shape)
        if replay is None:
            self._compute(shape)
        else:
            replay()

    def _compute(self, shape: K) -> None:
        compute = self._method()
        assert compute is not None, "the graphs outlived the object that they belong to"
        compute(shape)


def smallest_shape(
    shapes: Iterable[tuple[int, int]], rows: int, size: int
) -> tuple[int, int] | None:
    """The cheapest shape (rows, size) that holds so many rows of that size."""
    fitting = (shape for shape in shapes if shape[0] >= rows and shape[1] >= size)
    return min(fitting, key=lambda shape: shape[0] * shape[1], default=None)


class Mark:
    """A point of a queue."""

    def __init__(self, stream: torch.cuda.Stream | None) -> None:
        self._event: torch.cuda.Event | None = None
        if stream is not None:
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record(stream)

    @property
    def passed(self) -> bool:
        return self._event is None or bool(self._event.query())  # type: ignore[no-untyped-call]

    def wait(self) -> None:
        if self._event is not None:
            self._event.synchronize()


class Staging:
    """Pinned memory for numbers on their way to a device: to pin others takes longer than to copy
    them. Its halves are used in turn, each again when the device has read it."""

    def __init__(self, halves: Tensor, mark: Callable[[], Mark]) -> None:
        """`halves` [2, bytes]; `mark` gives a point of the queue behind what was copied so far."""
        self._halves, self._mark = halves, mark
        self._read: list[Mark | None] = [None, None]
        self._half = self._used = 0

    def pinned(self, numbers: Tensor) -> Tensor:
        """The same numbers there, for the queue to copy before the next ones come."""
        size = numbers.numel() * numbers.element_size()
        if size > self._halves.shape[1]:
            return numbers.pin_memory()
        if self._used + size > self._halves.shape[1]:
            self._read[self._half] = self._mark()
            self._half, self._used = 1 - self._half, 0
            if mark := self._read[self._half]:
                mark.wait()
        place = self._halves[self._half, self._used : self._used + size]
        self._used += -(-size // ALIGNED) * ALIGNED
        return place.view(numbers.dtype).view(numbers.shape).copy_(numbers)


class HostCopy:
    """Tensors on their way from the device to the host."""

    def __init__(self, tensors: Sequence[Tensor], stream: torch.cuda.Stream | None) -> None:
        if stream is None:
            self._host = [tensor.clone() for tensor in tensors]
            self._end = Mark(None)
            return
        self._host = [
            torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True) for tensor in tensors
        ]
        with torch.cuda.stream(stream):
            for host, tensor in zip(self._host, tensors, strict=True):
                host.copy_(tensor, non_blocking=True)
        self._end = Mark(stream)

    @property
    def ready(self) -> bool:
        return self._end.passed

    def get(self) -> list[Tensor]:
        """The tensors, once they have arrived."""
        self._end.wait()
        return self._host
