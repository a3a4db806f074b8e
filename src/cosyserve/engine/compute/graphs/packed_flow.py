"""The flow of several streams in one pack, where there are kernels for it: rows of any lengths one
behind another, so that little is computed but frames. Only the whole pack is padded, to one of a
few sizes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from cosyserve.contracts import FRAMES_PER_TOKEN
from cosyserve.engine.compute.graphs.device_queue import CapturedGraphs, DeviceQueue
from cosyserve.engine.compute.graphs.padded_flow import Kind
from cosyserve.models.config import DiTConfig
from cosyserve.models.flow.cfm import schedule
from cosyserve.models.flow.flow import Flow, FlowPrompt, FlowState
from cosyserve.models.flow.masks import RowChunks, chunk_columns
from cosyserve.models.flow.packing import Hidden, PackedTokens, RowSpans, Sight, pack
from cosyserve.models.fused import fused_encoder, fused_estimator

if TYPE_CHECKING:
    from cosyserve.models.flow.fused_dit import FusedDiT
    from cosyserve.models.flow.fused_encoder import FusedEncoder, FusedLookahead
    from cosyserve.models.flow.fused_rotary_dit import FusedRotaryDiT
    from cosyserve.models.flow.fused_unet import FusedUNet

    FusedEstimator = FusedUNet | FusedRotaryDiT | FusedDiT
    PackedEncoder = FusedEncoder | FusedLookahead

# Tokens of a pack, prompts included. A step takes as long with few of them as with a hundred.
SIZES = (
    *(32, 64, 96, 112, 128, 144, 160, 176, 200, 224, 256, 288, 320, 384, 448, 512, 576, 640, 768),
    *(896, 1024, 1216, 1408, 1664, 1920, 2240, 2624, 3072, 3584, 4096),
)


@dataclass(frozen=True)
class PackedBuffers:
    """All that is computed on; packs of all sizes use the first part of it."""

    tokens: Tensor  # [S] behind each row's tokens those it looks at; -1: none
    counts: Tensor  # [R] tokens of each row that become frames
    chunks: Tensor  # [T, 3], as of `RowChunks` of all rows in one, for a flow that remembers
    speaker: Tensor  # [R, E]
    prompt: Tensor  # [F, mel]
    sight: Tensor  # [4, 2F] int32: `RowSpans` and `Hidden`
    x: Tensor  # [F, mel] float32
    rows: Tensor  # [2F, 4 mel]: all of an estimate's input; the second half without conditions


class PackedFlow:
    def __init__(
        self,
        flow: Flow,
        queue: DeviceQueue,
        max_rows: int,
        encoder: PackedEncoder,
        estimator: FusedEstimator,
    ) -> None:
        self.flow, self.queue, self.max_rows = flow, queue, max_rows
        self._encoder, self._estimator = encoder, estimator
        self.sizes = [size for size in SIZES if FRAMES_PER_TOKEN * size <= flow.config.max_frames]
        self._spare = flow.lookahead * (2 if flow.config.remembers else 1)  # tokens of a row
        device = flow.weight.device
        strides = [stride for _, stride in schedule(flow.config.steps)]
        with queue.use():
            self._strides = torch.tensor(strides, device=device)
            self._at = torch.zeros(1, dtype=torch.long, device=device)  # number of the Euler step
            self._chunk = torch.zeros(1, dtype=torch.long, device=device)  # frames of the mask's
            self._noise = flow.noise(0, FRAMES_PER_TOKEN * self.sizes[-1], device).T.contiguous()
            self._buffers = self._buffers_of(self.sizes[-1])
        self._graphs = CapturedGraphs(queue, self._compute)

    @classmethod
    def of(cls, flow: Flow, queue: DeviceQueue, max_rows: int) -> PackedFlow | None:
        """None where there are no kernels for it."""
        with queue.use():
            times = [time for time, _ in schedule(flow.config.steps)]
            estimator = fused_estimator(flow.estimator, times, FRAMES_PER_TOKEN * SIZES[-1])
            encoder = estimator and fused_encoder(flow.encoder, SIZES[-1])
        return cls(flow, queue, max_rows, encoder, estimator) if estimator and encoder else None

    def warm_up(self) -> int:
        """Captures every size -> how many."""
        self._graphs.capture((kind, size) for size in self.sizes for kind in Kind)
        return len(self.sizes)

    def max_batch(self, tokens: Sequence[int]) -> int:
        """How many rows of so many tokens, prompts included, go into a pack, from the first on."""
        return sum(total <= self.sizes[-1] for total in accumulate(tokens[: self.max_rows]))

    def advance(
        self, states: Sequence[FlowState], tokens: Sequence[Sequence[int]], final: Sequence[bool]
    ) -> Generator[None, None, list[tuple[Tensor, FlowState]]]:
        """As `Flow.advance`, with a pause after every launch. The frames are there until the next
        call in this queue."""
        mels = yield from self._solve(states, tokens, final, streaming=True)
        return [(mel, state.after(mel)) for mel, state in zip(mels, states, strict=True)]

    def whole(
        self, prompts: Sequence[FlowPrompt], tokens: Sequence[Sequence[int]]
    ) -> Generator[None, None, list[Tensor]]:
        """As `Flow.whole`, with a pause after every launch."""
        states, last = [FlowState(prompt) for prompt in prompts], [True] * len(prompts)
        return (yield from self._solve(states, tokens, last, streaming=False))

    def _solve(
        self,
        states: Sequence[FlowState],
        tokens: Sequence[Sequence[int]],
        final: Sequence[bool],
        *,
        streaming: bool,
    ) -> Generator[None, None, list[Tensor]]:
        """The frames of each row behind its prompt and the tokens that are done: [mel, frames]."""
        ahead = self.flow.lookahead
        counts = [
            len(state.prompt.tokens) + len(row) - (0 if last else ahead)
            for state, row, last in zip(states, tokens, final, strict=True)
        ]
        size = self.sizes[bisect_left(self.sizes, sum(counts))]
        ends = list(accumulate(counts))
        chunked = streaming and self.flow.config.remembers
        self._write([state.prompt for state in states], tokens, counts, apart=chunked)
        if chunked:
            self._write_chunks(states, counts)
        self._graphs.run((Kind.PREPARE_CHUNK if streaming else Kind.PREPARE_WHOLE, size))
        yield
        for _ in range(self.flow.config.steps):
            self._graphs.run((Kind.EULER_STEP, size))
            yield
        return [
            self._buffers.x[
                FRAMES_PER_TOKEN
                * (end - count + len(state.prompt.tokens) + state.tokens) : FRAMES_PER_TOKEN * end
            ].T
            for state, count, end in zip(states, counts, ends, strict=True)
        ]

    def _write(
        self,
        prompts: Sequence[FlowPrompt],
        tokens: Sequence[Sequence[int]],
        counts: Sequence[int],
        *,
        apart: bool,
    ) -> None:
        """`apart`: each prompt looks at its own first tokens, not at those behind it."""
        buffers, ahead = self._buffers, self.flow.lookahead
        self.queue.write(buffers.counts, [*counts, *[0] * (self.max_rows - len(counts))])
        ids: list[int] = []
        for prompt, row, count in zip(prompts, tokens, counts, strict=True):
            begin, slots = len(ids), count + self._spare
            ids += [-1] * (len(prompt.tokens) + (ahead if apart else 0)) + list(row)
            ids += [-1] * (begin + slots - len(ids))
        buffers.tokens.fill_(-1)
        self.queue.write(buffers.tokens[: len(ids)], ids)
        buffers.prompt[: FRAMES_PER_TOKEN * sum(counts)].zero_()
        token = frame = 0
        for index, (prompt, count) in enumerate(zip(prompts, counts, strict=True)):
            own = torch.cat((prompt.tokens, prompt.tokens[:ahead])) if apart else prompt.tokens
            buffers.tokens[token : token + len(own)].copy_(own)
            buffers.prompt[frame : frame + len(prompt.mel)].copy_(prompt.mel)
            buffers.speaker[index].copy_(prompt.speaker)
            token, frame = token + count + self._spare, frame + FRAMES_PER_TOKEN * count

    def _write_chunks(self, states: Sequence[FlowState], counts: Sequence[int]) -> None:
        columns, begin = [], 0
        for state, count in zip(states, counts, strict=True):
            start = len(state.prompt.tokens)
            columns.append(begin + chunk_columns(start, [start + n for n in state.ends], count))
            begin += count
        self.queue.write(self._buffers.chunks[:begin], np.concatenate(columns, axis=1).T)

    def _compute(self, work: tuple[Kind, int]) -> None:
        kind, size = work
        if kind is Kind.EULER_STEP:
            self._step(size)
        else:
            self._prepare(size, streaming=kind is Kind.PREPARE_CHUNK)

    def _prepare(self, size: int, streaming: bool) -> None:
        """All that the Euler steps have in common."""
        flow, buffers = self.flow, self._buffers
        frames, mel, ahead = FRAMES_PER_TOKEN * size, flow.config.mel, flow.lookahead
        spans, row = pack(buffers.counts, size)
        at = torch.arange(size, device=row.device)
        own, chunks = at + self._spare * row, None
        if streaming and flow.config.remembers:
            chunks = RowChunks(*buffers.chunks[:size].T)
            own, spans = own + ahead * (at >= chunks.prompt), spans.up_to(chunks.end)
        seen = own[:, None] + torch.arange(ahead + 1, device=row.device)
        ids = buffers.tokens[: size + self._spare * self.max_rows]
        embedded = flow.input_embedding(ids.clamp(min=0))
        tokens = PackedTokens(embedded, ids >= 0, seen, spans)
        mu = flow.encoder_proj(self._encoder(tokens, streaming and chunks is None))
        spans = spans.repeated(FRAMES_PER_TOKEN)
        x, rows = buffers.x[:frames], buffers.rows[: self._copies * frames]
        x.copy_(self._noise[spans.positions()])
        rows.zero_()
        rows[:, :mel].copy_(x.repeat(self._copies, 1))
        rows[:frames, mel : 2 * mel].copy_(mu)
        voices = flow.speaker(buffers.speaker)[row]
        rows[:frames, 2 * mel : 3 * mel].copy_(voices.repeat_interleave(FRAMES_PER_TOKEN, dim=0))
        rows[:frames, 3 * mel :].copy_(buffers.prompt[:frames])
        parts = [*(spans.again() if self._copies == 2 else spans)]
        if flow.config.remembers:
            hidden = self._hidden(chunks, frames)
            parts += hidden.again() if self._copies == 2 else hidden
        for buffer, part in zip(buffers.sight, parts, strict=False):
            buffer[: len(part)].copy_(part)
        streamed = flow.config.encoder.chunk if streaming and chunks is None else SIZES[-1]
        self._chunk.fill_(FRAMES_PER_TOKEN * streamed)
        self._at.zero_()

    def _hidden(self, chunks: RowChunks | None, frames: int) -> Hidden:
        """What an estimate does not see of the chunks before."""
        estimator = self.flow.config.estimator
        assert isinstance(estimator, DiTConfig)
        if chunks is None:
            nothing = torch.zeros(frames, dtype=torch.int32, device=self._at.device)
            return Hidden.between(nothing, nothing)
        first, prompt = (
            FRAMES_PER_TOKEN * part.repeat_interleave(FRAMES_PER_TOKEN)
            for part in (chunks.first, chunks.prompt)
        )
        return Hidden.between(prompt, first - estimator.history)

    def _step(self, size: int) -> None:
        buffers, frames = self._buffers, FRAMES_PER_TOKEN * size
        both = self._copies * frames
        rows, sight = buffers.rows[:both], buffers.sight[:, :both]
        hidden = Hidden(*sight[2:]) if self.flow.config.remembers else None
        v = self._estimator(rows, self._at, Sight(RowSpans(*sight[:2]), self._chunk, hidden))
        guidance = self.flow.config.guidance
        self._estimator.euler(v, buffers.x[:frames], rows, self._strides, self._at, guidance)

    @property
    def _copies(self) -> int:
        """Of each row: one more for guidance."""
        return 2 if self.flow.config.guidance else 1

    def _buffers_of(self, size: int) -> PackedBuffers:
        config, like = self.flow.config, self.flow.weight
        frames, both = FRAMES_PER_TOKEN * size, self._copies * FRAMES_PER_TOKEN * size
        rows, slots = self.max_rows, size + self._spare * self.max_rows
        return PackedBuffers(
            tokens=torch.full((slots,), -1, device=like.device),
            counts=torch.ones(rows, dtype=torch.long, device=like.device),
            chunks=torch.zeros(size, 3, dtype=torch.long, device=like.device),
            speaker=like.new_zeros(rows, config.speaker),
            prompt=like.new_zeros(frames, config.mel),
            sight=torch.zeros(4, both, dtype=torch.int32, device=like.device),
            x=torch.zeros(frames, config.mel, device=like.device),
            rows=like.new_zeros(both, 4 * config.mel),
        )
