"""The vocoder for several streams on static buffers, one launch.

Windows are padded to one of a few shapes; the vocoder zeroes what lies behind a row's end, so that
padding changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from cosyserve.engine.compute.graphs.device_queue import CapturedGraphs, DeviceQueue, smallest_shape
from cosyserve.models.fused import fused_hift
from cosyserve.models.vocoder.hift import HiFT
from cosyserve.models.vocoder.stream import (
    VocoderState,
    Voiced,
    Windows,
    emit,
    voice,
    window,
)

# Frames of a window: left context and held frames, then those of a hop.
SIZES = (
    *(32, 48, 64, 80, 104, 128, 160, 192, 232, 280, 312, 352, 392, 432, 504, 560, 640, 720, 824),
    *(944, 1232, 1600, 2048),
)

# What a call costs, in frames: as many as its shape has, but no less than SMALL, and CALL more.
SMALL, CALL = 512, 80

Shape = tuple[int, int]


class VocoderGraphs:
    def __init__(
        self, vocoder: HiFT, queue: DeviceQueue, rows: Sequence[int], max_frames: int
    ) -> None:
        """Shapes are `rows` times SIZES with at most so many frames in all."""
        self.vocoder, self.queue, self._rows = vocoder, queue, tuple(rows)
        self.shapes = [
            (count, size) for size in SIZES for count in rows if count * size <= max_frames
        ]
        with queue.use():
            self._fused = fused_hift(vocoder)
            self._buffers = {shape: self._buffers_of(*shape) for shape in self.shapes}
        self._graphs = CapturedGraphs(queue, self._vocode)

    def warm_up(self) -> int:
        """Captures every shape -> how many."""
        self._graphs.capture(self.shapes)
        return len(self.shapes)

    def fits(self, frames: Sequence[int]) -> bool:
        """Whether windows of so many frames are one of the shapes."""
        return smallest_shape(self.shapes, len(frames), max(frames)) is not None

    def groups(self, frames: Sequence[int]) -> list[list[int]]:
        """Windows of so many frames, by their numbers, in calls that cost least together."""
        order = sorted(range(len(frames)), key=frames.__getitem__, reverse=True)
        # Of the last n of them, the cost and the first group.
        best: list[tuple[float, list[int]]] = [(0.0, [])]
        for left in range(1, len(order) + 1):
            last = order[-left:]
            counts = {min(rows, left) for rows in (1, *self._rows)}
            cost, count = min(
                (self._cost(count, frames[last[0]]) + best[left - count][0], count)
                for count in counts
            )
            best.append((cost, last[:count]))
        groups, left = [], len(order)
        while left:
            groups.append(best[left][1])
            left -= len(groups[-1])
        return groups

    def _cost(self, rows: int, longest: int) -> float:
        if shape := smallest_shape(self.shapes, rows, longest):
            return max(SMALL, shape[0] * shape[1]) + CALL
        return longest if rows == 1 else math.inf  # one row can do without a shape

    def advance(
        self, states: Sequence[VocoderState], mels: Sequence[Tensor], final: Sequence[bool]
    ) -> list[tuple[Tensor, VocoderState]]:
        """As `vocoder.stream.advance`."""
        frames = [window(state, mel) for state, mel in zip(states, mels, strict=True)]
        sizes = [mel.shape[1] for mel in frames]
        shape = smallest_shape(self.shapes, len(frames), max(sizes))
        assert shape is not None
        windows, counts, voiced = self._buffers[shape]
        rest = [1] * (shape[0] - len(frames))  # dummy rows
        settled = [len(state.f0) for state in states]
        columns = sizes, settled, [s.start for s in states], [s.seed for s in states]
        self.queue.write(counts, [column + rest for column in columns])
        windows.mel.zero_()
        for index, (state, mel) in enumerate(zip(states, frames, strict=True)):
            windows.mel[index, :, : mel.shape[1]].copy_(mel)
            windows.f0[index, : settled[index]].copy_(state.f0)
            windows.phase[index].copy_(state.phase)
        self._graphs.run(shape)
        # The f0 of a window outlives the next call in this queue.
        voiced = voiced._replace(f0=voiced.f0.clone())
        return emit(self.vocoder, states, frames, voiced, final)

    def _vocode(self, shape: Shape) -> None:
        windows, _, voiced = self._buffers[shape]
        for buffer, value in zip(voiced, voice(self.vocoder, windows, self._fused), strict=True):
            buffer.copy_(value)

    def _buffers_of(self, rows: int, size: int) -> tuple[Windows, Tensor, Voiced]:
        config, device = self.vocoder.config, self.vocoder.conv_pre.weight.device
        tones = config.harmonics + 1
        counts = torch.ones(4, rows, dtype=torch.long, device=device)
        lengths, settled, start, seed = counts
        f0 = torch.zeros(rows, size, device=device)
        phase = torch.zeros(rows, tones, dtype=torch.float64, device=device)
        mel = torch.zeros(rows, config.mel, size, device=device)
        windows = Windows(mel, lengths, f0, settled, start, phase, seed)
        voiced = Voiced(
            torch.zeros(rows, size * self.vocoder.frame, device=device),
            torch.zeros(rows, size, device=device),
            torch.zeros(rows, size, tones, dtype=torch.float64, device=device),
        )
        return windows, counts, voiced
