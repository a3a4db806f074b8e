"""The vocoder for several streams on static buffers, one launch.

Windows are padded to one of a few shapes; the vocoder zeroes what lies behind a row's end, so that
padding changes nothing.
"""

from __future__ import annotations

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
SIZES = (32, 48, 64, 80, 104, 128, 160, 192, 232, 280, 352, 432, 560, 720, 944, 1232, 1600, 2048)

# Frames of a shape for each that is needed, and as many more as take no longer: beyond that, two
# calls are quicker.
WASTE, SMALL = 1.3, 512

Shape = tuple[int, int]


class VocoderGraphs:
    def __init__(
        self, vocoder: HiFT, queue: DeviceQueue, rows: Sequence[int], max_frames: int
    ) -> None:
        """Shapes are `rows` times SIZES with at most so many frames in all."""
        self.vocoder, self.queue = vocoder, queue
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
        """Windows of so many frames, by their numbers, in calls that compute little else."""
        return self._halved(sorted(range(len(frames)), key=frames.__getitem__), frames)

    def _halved(self, numbers: list[int], frames: Sequence[int]) -> list[list[int]]:
        shape = smallest_shape(self.shapes, len(numbers), frames[numbers[-1]])
        needed = sum(frames[number] for number in numbers)
        if len(numbers) == 1 or (shape and shape[0] * shape[1] <= WASTE * needed + SMALL):
            return [numbers]
        half = len(numbers) // 2
        return self._halved(numbers[:half], frames) + self._halved(numbers[half:], frames)

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
