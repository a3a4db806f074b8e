"""Tokens to samples in one queue of a device: flow, stretch and vocoder, one after another."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Sequence
from dataclasses import replace
from weakref import ReferenceType, ref

import torch
from torch import Tensor

from cosyserve.engine.compute import gpu_memory
from cosyserve.engine.compute.graphs.device_queue import DeviceQueue
from cosyserve.engine.compute.graphs.packed_flow import PackedFlow
from cosyserve.engine.compute.graphs.padded_flow import FlowGraphs
from cosyserve.engine.compute.graphs.prefix_cache import PrefixCache
from cosyserve.engine.compute.graphs.vocoder import VocoderGraphs
from cosyserve.engine.compute.incremental_flow import incremental_flow
from cosyserve.engine.compute.queued_audio import Launches, QueuedAudio, Token2WavState
from cosyserve.engine.compute.stretch import stretch
from cosyserve.models.flow.flow import Flow
from cosyserve.models.flow.foreign import ForeignEstimator
from cosyserve.models.flow.stream import FlowState
from cosyserve.models.vocoder import stream
from cosyserve.models.vocoder.hift import HiFT
from cosyserve.models.vocoder.host import host_hift
from cosyserve.models.vocoder.stream import VocoderState

BATCH, BATCH_TOKENS = 8, 256  # chunks in one call where shapes are free, and their tokens together


class Token2WavQueue:
    """Flow, stretch and vocoder in one queue: on static buffers where their shapes are known, so
    that a batch may only be started when all of the one before is `launched`."""

    def __init__(
        self,
        flow: Flow,
        vocoder: HiFT,
        queue: DeviceQueue,
        rows: Sequence[int],
        frames: int,
        prefixes: PrefixCache | None = None,
        *,
        streams: bool = True,
    ) -> None:
        """`frames` of the vocoder's largest shape; without `streams`, for whole texts alone."""
        self.flow, self.vocoder, self.queue = flow, vocoder, queue
        self._flow: PackedFlow | FlowGraphs | None = None
        self._vocoder: VocoderGraphs | None = None
        self._last: ReferenceType[QueuedAudio] | None = None  # kept by whoever waits for it
        self._incremental, self._host = incremental_flow(flow), host_hift(vocoder)
        if queue.static:
            self._vocoder = VocoderGraphs(vocoder, queue, rows, frames)
        if queue.static and not isinstance(flow.estimator, ForeignEstimator):
            packed = PackedFlow.of(flow, queue, rows[-1], prefixes, streams=streams)
            self._flow = packed or FlowGraphs(
                flow, queue, rows, gpu_memory.max_tokens(queue.device)
            )

    @property
    def prefixes(self) -> PrefixCache | None:
        """What it has computed of prompts, for others to use, too."""
        return self._flow.prefixes if isinstance(self._flow, PackedFlow) else None

    @property
    def static(self) -> bool:
        return self._flow is not None

    @property
    def packed(self) -> bool:
        """Whether the flow has kernels for the device."""
        return isinstance(self._flow, PackedFlow)

    def max_batch(self, states: Sequence[Token2WavState], tokens: Sequence[Sequence[int]]) -> int:
        if self._flow:
            return max(1, self._flow.max_batch(_lengths(states, tokens)))
        # Long chunks gain nothing from company, and nobody's first one can interrupt them.
        counts = itertools.accumulate(len(row) for row in tokens[:BATCH])
        return max(1, sum(count <= BATCH_TOKENS for count in counts))

    def warm_up(self) -> int:
        return sum(part.warm_up() for part in (self._flow, self._vocoder) if part)

    def start(
        self,
        states: Sequence[Token2WavState],
        tokens: Sequence[Sequence[int]],
        final: Sequence[bool] | None,
    ) -> QueuedAudio:
        assert self.launched, "two batches would be computed on the same buffers"
        launches = self._launches(states, tokens, final)
        audio = QueuedAudio(self.queue, states, launches, self.prefixes)
        self._last = ref(audio)
        return audio

    @property
    def launched(self) -> bool:
        """Whether the device has all of the work."""
        last = self._last() if self._last else None
        return last is None or last.launched

    def _launches(
        self,
        states: Sequence[Token2WavState],
        tokens: Sequence[Sequence[int]],
        final: Sequence[bool] | None,
    ) -> Launches:
        flows = yield from self._mels(states, tokens, final)
        last = [True] * len(states) if final is None else final
        mels, stretches = [], []
        for state, (mel, _), end in zip(states, flows, last, strict=True):
            stretched = state.stretch
            if state.speed != 1.0:
                mel, stretched = stretch(mel, stretched, state.speed, end)
            mels.append(mel)
            stretches.append(stretched)
        vocoded = self._samples([state.vocoder for state in states], mels, last)
        after = [
            replace(state, flow=flow, stretch=stretched, vocoder=vocoder)
            for state, (_, flow), stretched, (_, vocoder) in zip(
                states, flows, stretches, vocoded, strict=True
            )
        ]
        return after, self.queue.read(*(samples for samples, _ in vocoded))

    def _mels(
        self,
        states: Sequence[Token2WavState],
        tokens: Sequence[Sequence[int]],
        final: Sequence[bool] | None,
    ) -> Generator[None, None, list[tuple[Tensor, FlowState]]]:
        flows = [state.flow for state in states]
        prompts = [flow.prompt for flow in flows]
        if self._flow and self._flow.max_batch(_lengths(states, tokens)) == len(states):
            if final is not None:
                return (yield from self._flow.advance(flows, tokens, final))
            whole = yield from self._flow.whole(prompts, tokens)
            return list(zip(whole, flows, strict=True))
        device = self.flow.weight.device
        ids = [torch.tensor(row, device=device) for row in tokens]
        if final is not None:
            return (self._incremental or self.flow).advance(flows, ids, final)
        return list(zip(self.flow.whole(prompts, ids), flows, strict=True))

    def _samples(
        self, states: Sequence[VocoderState], mels: Sequence[Tensor], final: Sequence[bool]
    ) -> list[tuple[Tensor, VocoderState]]:
        """Windows of like lengths are computed together."""
        frames = [s.mel.shape[1] + mel.shape[1] for s, mel in zip(states, mels, strict=True)]
        if self._vocoder is None:
            return stream.advance(self.vocoder, states, mels, final, self._host)
        vocoded: dict[int, tuple[Tensor, VocoderState]] = {}
        for group in self._vocoder.groups(frames):
            part = [states[n] for n in group], [mels[n] for n in group], [final[n] for n in group]
            fits = self._vocoder.fits([frames[n] for n in group])
            done = self._vocoder.advance(*part) if fits else stream.advance(self.vocoder, *part)
            vocoded.update(zip(group, done, strict=True))
        return [vocoded[n] for n in range(len(states))]


def _lengths(states: Sequence[Token2WavState], tokens: Sequence[Sequence[int]]) -> list[int]:
    """Tokens of each row, prompts included."""
    return [state.prompt_tokens + len(row) for state, row in zip(states, tokens, strict=True)]
