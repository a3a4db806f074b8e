"""The flow of several streams on static buffers, where there are no kernels for it: conditions
first, then one Euler step at a time, each a launch of its own.

Rows and frames are padded to one of a few shapes; what lies behind a row's end is masked, so that
padding changes nothing. Streams are computed anew over all tokens so far, also those of a flow that
could remember: it would need a hundred times the memory.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import accumulate, takewhile

import numpy as np
import torch
from torch import Tensor

from cosyserve.contracts import FRAMES_PER_TOKEN
from cosyserve.engine.compute.graphs.device_queue import CapturedGraphs, DeviceQueue, smallest_shape
from cosyserve.models.flow.cfm import doubled, euler, schedule
from cosyserve.models.flow.flow import Flow, FlowBatch
from cosyserve.models.flow.masks import RowChunks, chunk_columns, valid
from cosyserve.models.flow.stream import FlowPrompt, FlowState

# Tokens of a row, prompt included: a little more than multiples of the chunk grid, where all but
# last chunks end, and multiples of 8, which attention masks must be to be read without a copy.
SIZES = (
    *(32, 56, 80, 104, 128, 152, 176, 200, 232, 256, 280, 304, 352, 400),
    *(480, 560, 640, 760, 880, 1000, 1128, 1256, 1504),
)


Shape = tuple[int, int]  # rows, tokens per row


class PaddedWork(Enum):
    """What a graph computes: the conditions of a whole text or of a chunk, or an Euler step."""

    PREPARE_WHOLE = auto()
    PREPARE_CHUNK = auto()
    EULER_STEP = auto()


@dataclass(frozen=True)
class PaddedBuffers:
    """All that is computed on, for one shape."""

    tokens: Tensor  # [B, size + lookahead], for a flow that remembers 2 * lookahead; -1: none
    counts: Tensor  # [2, B]: tokens given, tokens that become frames
    chunks: Tensor  # [3, B, size], as of `RowChunks`
    prompt: Tensor  # [B, mel, frames]
    speaker: Tensor  # [B, E]
    mu: Tensor  # [2B, mel, frames] these four are doubled for guidance
    voice: Tensor  # [2B, mel]
    condition: Tensor  # [2B, mel, frames]
    bias: Tensor  # [2B, 1, frames, frames]
    x: Tensor  # [B, mel, frames] float32


class FlowGraphs:
    def __init__(
        self, flow: Flow, queue: DeviceQueue, rows: Sequence[int], max_tokens: int
    ) -> None:
        """Shapes are `rows` times SIZES with at most so many tokens in all."""
        self.flow, self.queue = flow, queue
        self.shapes = [
            (count, size)
            for size in SIZES
            for count in rows
            if count * size <= max_tokens and FRAMES_PER_TOKEN * size <= flow.config.max_frames
        ]
        self._spare = flow.lookahead * (2 if flow.config.remembers else 1)  # tokens of a row
        device = flow.weight.device
        times, strides = zip(*schedule(flow.config.steps), strict=True)
        with queue.use():
            self._times = torch.tensor(times, device=device)
            self._strides = torch.tensor(strides, device=device)
            self._at = torch.zeros(1, dtype=torch.long, device=device)  # number of the Euler step
            self._memory: dict[str, Tensor] = {}
            for _ in range(2):  # once for the sizes, once for views of what is large enough
                self._buffers = {shape: self._buffers_of(*shape) for shape in self.shapes}
            if self.shapes:
                for name in ("counts", "chunks"):  # rows without a frame are no rows
                    self._memory[name].fill_(1)
        self._graphs = CapturedGraphs(queue, self._compute)

    def warm_up(self) -> int:
        """Captures every shape -> how many."""
        self._graphs.capture((kind, shape) for shape in self.shapes for kind in PaddedWork)
        return len(self.shapes)

    def max_batch(self, tokens: Sequence[int]) -> int:
        """How many rows of so many tokens, prompts included, fit one of the shapes, from the first
        on."""
        longest = accumulate(tokens, max)
        fitting = (
            smallest_shape(self.shapes, rows, size) is not None
            for rows, size in enumerate(longest, 1)
        )
        return sum(takewhile(bool, fitting))

    def advance(
        self, states: Sequence[FlowState], tokens: Sequence[Sequence[int]], final: Sequence[bool]
    ) -> Generator[None, None, list[tuple[Tensor, FlowState]]]:
        """As `Flow.advance`, with a pause after every launch. The frames are there until the next
        call in this queue."""
        prompts = [state.prompt for state in states]
        ends = [state.ends for state in states]
        mel, encoded = yield from self._solve(prompts, tokens, final, ends)
        mels = self.flow.speech(mel, encoded, prompts, [state.tokens for state in states])
        return [(row, state.after(row)) for row, state in zip(mels, states, strict=True)]

    def whole(
        self, prompts: Sequence[FlowPrompt], tokens: Sequence[Sequence[int]]
    ) -> Generator[None, None, list[Tensor]]:
        """As `Flow.whole`, with a pause after every launch."""
        last = [True] * len(prompts)
        mel, encoded = yield from self._solve(prompts, tokens, last, None)
        return self.flow.speech(mel, encoded, prompts, [0] * len(prompts))

    def _solve(
        self,
        prompts: Sequence[FlowPrompt],
        tokens: Sequence[Sequence[int]],
        final: Sequence[bool],
        ends: Sequence[Sequence[int]] | None,
    ) -> Generator[None, None, tuple[Tensor, list[int]]]:
        """`ends` of the chunks before; None: whole utterances."""
        lengths = [len(p.tokens) + len(row) for p, row in zip(prompts, tokens, strict=True)]
        ahead = self.flow.lookahead
        encoded = [n - (0 if last else ahead) for n, last in zip(lengths, final, strict=True)]
        shape = smallest_shape(self.shapes, len(prompts), max(encoded))
        assert shape is not None
        buffers = self._buffers[shape]
        rest = [1] * (shape[0] - len(prompts))  # dummy rows
        self.queue.write(buffers.counts, (lengths + rest, encoded + rest))
        apart = ends is not None and self.flow.config.remembers  # prompt and speech
        buffers.tokens.fill_(-1)
        buffers.prompt.zero_()
        for index, (prompt, row) in enumerate(zip(prompts, tokens, strict=True)):
            start = len(prompt.tokens)
            buffers.tokens[index, :start].copy_(prompt.tokens)
            if apart:
                seen = prompt.tokens[:ahead]
                buffers.tokens[index, start : start + len(seen)].copy_(seen)
                start += ahead
            self.queue.write(buffers.tokens[index, start : start + len(row)], row)
            buffers.prompt[index, :, : len(prompt.mel)].copy_(prompt.mel.T)
            buffers.speaker[index].copy_(prompt.speaker)
        if apart:
            assert ends is not None
            self._write_chunks(buffers.chunks, prompts, ends, encoded)
        self._graphs.run(
            (PaddedWork.PREPARE_WHOLE if ends is None else PaddedWork.PREPARE_CHUNK, shape)
        )
        yield
        for _ in range(self.flow.config.steps):
            self._graphs.run((PaddedWork.EULER_STEP, shape))
            yield
        return buffers.x, encoded

    def _write_chunks(
        self,
        target: Tensor,
        prompts: Sequence[FlowPrompt],
        ends: Sequence[Sequence[int]],
        encoded: Sequence[int],
    ) -> None:
        columns = np.zeros(target.shape, np.int64)
        columns[1] = 1  # behind a row, something must be seen
        for row, (prompt, past, size) in enumerate(zip(prompts, ends, encoded, strict=True)):
            start = len(prompt.tokens)
            columns[:, row, :size] = chunk_columns(start, [start + end for end in past], size)
        self.queue.write(target, columns)

    def _compute(self, work: tuple[PaddedWork, Shape]) -> None:
        kind, shape = work
        if kind is PaddedWork.EULER_STEP:
            self._step(shape)
        else:
            self._prepare(shape, streaming=kind is PaddedWork.PREPARE_CHUNK)

    def _prepare(self, shape: Shape, streaming: bool) -> None:
        """All that the Euler steps have in common."""
        flow, buffers, (_, size) = self.flow, self._buffers[shape], shape
        guidance = flow.config.guidance
        given, encoded = buffers.counts
        inside = valid(encoded, size)
        chunked = streaming and flow.config.remembers
        batch = FlowBatch(
            buffers.tokens if chunked else buffers.tokens[:, : size + flow.lookahead].clamp(min=0),
            given,
            (),
            inside,
            size,
            buffers.prompt,
            buffers.speaker,
            RowChunks(*buffers.chunks) if chunked else None,
        )
        buffers.mu.copy_(doubled(flow.conditions(batch, streaming), guidance))
        buffers.voice.copy_(doubled(flow.speaker(batch.speaker), guidance))
        buffers.condition.copy_(doubled(batch.prompt, guidance))
        buffers.x.copy_(flow.noise(0, FRAMES_PER_TOKEN * size, buffers.x.device))
        bias = flow.attention_bias(batch, streaming)
        assert bias is not None
        buffers.bias.copy_(bias)
        self._at.zero_()

    def _step(self, shape: Shape) -> None:
        flow, buffers = self.flow, self._buffers[shape]

        def velocity(
            x: Tensor, mu: Tensor, speaker: Tensor, prompt: Tensor, t: Tensor, step: int
        ) -> Tensor:
            v: Tensor = flow.estimator(x, mu, speaker, prompt, t, buffers.bias)
            return v

        conditions = buffers.mu, buffers.voice, buffers.condition
        t, dt = (table.index_select(0, self._at)[0] for table in (self._times, self._strides))
        x = euler(velocity, buffers.x, *conditions, t, dt, 0, flow.config.guidance)
        buffers.x.copy_(x)
        self._at.add_(1).remainder_(flow.config.steps)

    def _buffers_of(self, rows: int, size: int) -> PaddedBuffers:
        config, dtype = self.flow.config, self.flow.weight.dtype
        frames, both = FRAMES_PER_TOKEN * size, 2 * rows if config.guidance else rows

        def buffer(name: str, *shape: int, dtype: torch.dtype = dtype) -> Tensor:
            """A view of what all shapes share: only one of them is computed at a time."""
            need = torch.Size(shape).numel()
            kept = self._memory.get(name)
            if kept is None or len(kept) < need:
                kept = torch.zeros(need, dtype=dtype, device=self._times.device)
                self._memory[name] = kept
            return kept[:need].view(shape)

        return PaddedBuffers(
            tokens=buffer("tokens", rows, size + self._spare, dtype=torch.long),
            chunks=buffer("chunks", 3, rows, size, dtype=torch.long),
            counts=buffer("counts", 2, rows, dtype=torch.long),
            prompt=buffer("prompt", rows, config.mel, frames),
            speaker=buffer("speaker", rows, config.speaker),
            mu=buffer("mu", both, config.mel, frames),
            voice=buffer("voice", both, config.mel),
            condition=buffer("condition", both, config.mel, frames),
            bias=buffer("bias", both, 1, frames, frames),
            x=buffer("x", rows, config.mel, frames, dtype=torch.float32),
        )
