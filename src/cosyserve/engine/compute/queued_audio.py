"""Chunks of audio on their way through the queue of a device, and the states of their streams."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from cosyserve.contracts import Floats
from cosyserve.engine.compute.graphs.device_queue import DeviceQueue, HostCopy, Mark
from cosyserve.engine.compute.graphs.prefix_cache import PrefixCache
from cosyserve.engine.compute.stretch import StretchState
from cosyserve.errors import CosyError
from cosyserve.models.flow.stream import FlowState
from cosyserve.models.vocoder.stream import VocoderState

AHEAD = 6  # launches of a batch that the GPU has not finished


@dataclass(frozen=True)
class Token2WavState:
    """The state of a stream between two chunks."""

    flow: FlowState
    vocoder: VocoderState
    stretch: StretchState | None
    speed: float
    grid: int
    lookahead: int
    hop: int  # tokens of the second hop
    fixed: bool  # whether chunks may be no longer than their hops, or other speech comes of them

    @property
    def prompt_tokens(self) -> int:
        return len(self.flow.prompt.tokens)


class PendingAudio(Protocol):
    """Chunks that are being computed."""

    @property
    def launched(self) -> bool:
        """Whether the device has all of the work, so that it would take more."""
        ...

    def poll(self) -> bool:
        """Goes on with them, without waiting; whether all of them have come out."""
        ...

    def get(self) -> list[tuple[Floats, Token2WavState]]:
        """Samples and the state behind them, per stream; waits for them."""
        ...


Launches = Generator[None, None, tuple[list[Token2WavState], HostCopy]]


class QueuedAudio:
    """Chunks in a queue, put there launch by launch: a host that is too far ahead of its GPU would
    be held up, and the LM with it."""

    def __init__(
        self,
        queue: DeviceQueue,
        before: Sequence[Token2WavState],
        launches: Launches,
        prefixes: PrefixCache | None = None,
    ) -> None:
        """`before`: what the chunks are computed from, which must be there until they are;
        `prefixes`: where the launches leave what they compute of prompts."""
        self._queue, self._before, self._launches = queue, before, launches
        self._prefixes = prefixes
        self._marks: deque[Mark] = deque()
        self._result: tuple[list[Token2WavState], HostCopy] | None = None
        self._error: Exception | None = None
        self._go_on()

    @property
    def launched(self) -> bool:
        return self._result is not None or self._error is not None

    def poll(self) -> bool:
        while self._marks and self._marks[0].passed:
            self._marks.popleft()
        self._go_on()
        return self._error is not None or (self._result is not None and self._result[1].ready)

    def get(self) -> list[tuple[Floats, Token2WavState]]:
        while self._result is None:
            if self._error is not None:
                raise self._error
            self._marks.popleft().wait()
            self._go_on()
        after, copies = self._result
        samples = [chunk.numpy().copy() for chunk in copies.get()]
        if not all(np.isfinite(chunk).all() for chunk in samples):
            self._forget_prompts()
            raise CosyError("the model computed NaN instead of speech: its weights are broken")
        return list(zip(samples, after, strict=True))

    def _forget_prompts(self) -> None:
        """One that is no number may have come into what is kept of its neighbours in a pack."""
        if self._prefixes:
            for state in self._before:
                self._prefixes.forget(state.flow.prompt)

    def _go_on(self) -> None:
        with self._queue.use(), torch.inference_mode():
            while not (self._result or self._error) and len(self._marks) < AHEAD:
                try:
                    next(self._launches)
                except StopIteration as end:
                    self._result = end.value
                except Exception as error:
                    self._error = error
                else:
                    self._marks.append(self._queue.mark())
