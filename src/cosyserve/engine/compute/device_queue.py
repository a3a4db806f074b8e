"""Where work is queued in order: a stream of a GPU, or simply this thread on a CPU.

The one place that knows the difference. Knows no model. On a GPU nothing here waits for the device
except `HostCopy.get`; work on static buffers can be captured once and replayed as one launch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import torch
from torch import Tensor

from cosyserve.models.kernels import kernels_supported

WARM_RUNS = 1  # before a capture: libraries choose their kernels and caches are filled
URGENT, SOON, LATER = -2, -1, 0  # of several streams' waiting kernels, the lowest goes first
SPARE = [1 << 20] * 64 + [20 << 20] * 8  # bytes of blocks that sessions' own tensors come from

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

    def use(self) -> AbstractContextManager[object]:
        """What is computed inside goes to this queue."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def fit(self, size: int, sizes: Sequence[int]) -> int:
        """The size to compute with: the next of the rising sizes, where shapes are static."""
        at = bisect_left(sizes, size)
        return sizes[at] if self.static and at < len(sizes) else size

    def write(self, target: Tensor, values: Sequence[object]) -> None:
        """Host numbers into a buffer."""
        found = torch.tensor(values, dtype=target.dtype)
        if self._stream is not None:
            found = found.pin_memory()
        target.copy_(found, non_blocking=True)

    def read(self, *tensors: Tensor) -> HostCopy:
        """What the tensors hold at this point of the queue."""
        return HostCopy(tensors, self._stream)

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
        """Takes memory that sessions will need, so that no other process can have it: what is freed
        in a queue stays with it, until the next capture."""
        if self._stream is not None:
            with torch.cuda.stream(self._stream):
                blocks = [torch.empty(n, dtype=torch.uint8, device=self.device) for n in SPARE]
            del blocks

    def wait(self) -> None:
        """Until all that was queued is done."""
        if self._stream is not None:
            self._stream.synchronize()


class HostCopy:
    """Numbers on their way from the device to the host."""

    def __init__(self, tensors: Sequence[Tensor], stream: torch.cuda.Stream | None) -> None:
        self._event: torch.cuda.Event | None = None
        if stream is None:
            self._found = [tensor.clone() for tensor in tensors]
            return
        self._found = [
            torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True) for tensor in tensors
        ]
        with torch.cuda.stream(stream):
            for host, tensor in zip(self._found, tensors, strict=True):
                host.copy_(tensor, non_blocking=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record(stream)

    @property
    def ready(self) -> bool:
        return self._event is None or bool(self._event.query())  # type: ignore[no-untyped-call]

    def get(self) -> list[Tensor]:
        """Waits until they are there."""
        if self._event is not None:
            self._event.synchronize()
        return self._found
