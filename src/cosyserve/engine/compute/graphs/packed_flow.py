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

import torch
from torch import Tensor

from cosyserve.contracts import FRAMES_PER_TOKEN
from cosyserve.engine.compute.graphs.device_queue import CapturedGraphs, DeviceQueue
from cosyserve.engine.compute.graphs.padded_flow import Kind
from cosyserve.models.flow.cfm import schedule
from cosyserve.models.flow.flow import Flow, FlowPrompt, FlowState
from cosyserve.models.flow.packing import PackedTokens, RowSpans, pack
from cosyserve.models.fused import fused_encoder, fused_estimator

if TYPE_CHECKING:
    from cosyserve.models.flow.fused_encoder import FusedEncoder, FusedLookahead
    from cosyserve.models.flow.fused_rotary_dit import FusedRotaryDiT
    from cosyserve.models.flow.fused_unet import FusedUNet

    FusedEstimator = FusedUNet | FusedRotaryDiT
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
    speaker: Tensor  # [R, E]
    prompt: Tensor  # [F, mel]
    starts: Tensor  # [2F] int32, as of `RowSpans`
    ends: Tensor  # [2F] int32
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
        prompts = [state.prompt for state in states]
        done = [state.tokens for state in states]
        mels = yield from self._solve(prompts, tokens, done, final, streaming=True)
        return [(mel, state.after(mel)) for mel, state in zip(mels, states, strict=True)]

    def whole(
        self, prompts: Sequence[FlowPrompt], tokens: Sequence[Sequence[int]]
    ) -> Generator[None, None, list[Tensor]]:
        """As `Flow.whole`, with a pause after every launch."""
        nothing, last = [0] * len(prompts), [True] * len(prompts)
        return (yield from self._solve(prompts, tokens, nothing, last, streaming=False))

    def _solve(
        self,
        prompts: Sequence[FlowPrompt],
        tokens: Sequence[Sequence[int]],
        done: Sequence[int],
        final: Sequence[bool],
        *,
        streaming: bool,
    ) -> Generator[None, None, list[Tensor]]:
        """The frames of each row behind its prompt and the tokens that are done: [mel, frames]."""
        ahead = self.flow.lookahead
        counts = [
            len(prompt.tokens) + len(row) - (0 if last else ahead)
            for prompt, row, last in zip(prompts, tokens, final, strict=True)
        ]
        size = self.sizes[bisect_left(self.sizes, sum(counts))]
        ends = list(accumulate(counts))
        self._write(prompts, tokens, counts)
        self._graphs.run((Kind.PREPARE_CHUNK if streaming else Kind.PREPARE_WHOLE, size))
        yield
        for _ in range(self.flow.config.steps):
            self._graphs.run((Kind.EULER_STEP, size))
            yield
        return [
            self._buffers.x[
                FRAMES_PER_TOKEN * (end - count + len(prompt.tokens) + past) : FRAMES_PER_TOKEN
                * end
            ].T
            for prompt, past, count, end in zip(prompts, done, counts, ends, strict=True)
        ]

    def _write(
        self,
        prompts: Sequence[FlowPrompt],
        tokens: Sequence[Sequence[int]],
        counts: Sequence[int],
    ) -> None:
        buffers, ahead = self._buffers, self.flow.lookahead
        self.queue.write(buffers.counts, [*counts, *[0] * (self.max_rows - len(counts))])
        ids: list[int] = []
        for prompt, row, count in zip(prompts, tokens, counts, strict=True):
            given = len(prompt.tokens) + len(row)
            ids += [-1] * len(prompt.tokens) + list(row) + [-1] * (count + ahead - given)
        buffers.tokens.fill_(-1)
        self.queue.write(buffers.tokens[: len(ids)], ids)
        buffers.prompt[: FRAMES_PER_TOKEN * sum(counts)].zero_()
        token = frame = 0
        for index, (prompt, count) in enumerate(zip(prompts, counts, strict=True)):
            buffers.tokens[token : token + len(prompt.tokens)].copy_(prompt.tokens)
            buffers.prompt[frame : frame + len(prompt.mel)].copy_(prompt.mel)
            buffers.speaker[index].copy_(prompt.speaker)
            token, frame = token + count + ahead, frame + FRAMES_PER_TOKEN * count

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
        own = torch.arange(size, device=row.device) + ahead * row
        seen = own[:, None] + torch.arange(ahead + 1, device=row.device)
        ids = buffers.tokens[: size + ahead * self.max_rows]
        embedded = flow.input_embedding(ids.clamp(min=0))
        mu = flow.encoder_proj(
            self._encoder(PackedTokens(embedded, ids >= 0, seen, spans), streaming)
        )
        spans = spans.repeated(FRAMES_PER_TOKEN)
        x, rows = buffers.x[:frames], buffers.rows[: self._copies * frames]
        x.copy_(self._noise[spans.positions()])
        rows.zero_()
        rows[:, :mel].copy_(x.repeat(self._copies, 1))
        rows[:frames, mel : 2 * mel].copy_(mu)
        voices = flow.speaker(buffers.speaker)[row]
        rows[:frames, 2 * mel : 3 * mel].copy_(voices.repeat_interleave(FRAMES_PER_TOKEN, dim=0))
        rows[:frames, 3 * mel :].copy_(buffers.prompt[:frames])
        for buffer, part in zip(
            (buffers.starts, buffers.ends),
            spans.again() if self._copies == 2 else spans,
            strict=True,
        ):
            buffer[: len(part)].copy_(part)
        longest = SIZES[-1] if not streaming else flow.config.encoder.chunk
        self._chunk.fill_(FRAMES_PER_TOKEN * longest)
        self._at.zero_()

    def _step(self, size: int) -> None:
        buffers, frames = self._buffers, FRAMES_PER_TOKEN * size
        both = self._copies * frames
        rows, spans = buffers.rows[:both], RowSpans(buffers.starts[:both], buffers.ends[:both])
        v = self._estimator(rows, self._at, spans, self._chunk)
        guidance = self.flow.config.guidance
        self._estimator.euler(v, buffers.x[:frames], rows, self._strides, self._at, guidance)

    @property
    def _copies(self) -> int:
        """Of each row: one more for guidance."""
        return 2 if self.flow.config.guidance else 1

    def _buffers_of(self, size: int) -> PackedBuffers:
        config, like = self.flow.config, self.flow.weight
        frames, both = FRAMES_PER_TOKEN * size, self._copies * FRAMES_PER_TOKEN * size
        rows, slots = self.max_rows, size + self.flow.lookahead * self.max_rows
        integers = torch.zeros(2, both, dtype=torch.int32, device=like.device)
        return PackedBuffers(
            tokens=torch.full((slots,), -1, device=like.device),
            counts=torch.ones(rows, dtype=torch.long, device=like.device),
            speaker=like.new_zeros(rows, config.speaker),
            prompt=like.new_zeros(frames, config.mel),
            starts=integers[0],
            ends=integers[1],
            x=torch.zeros(frames, config.mel, device=like.device),
            rows=like.new_zeros(both, 4 * config.mel),
        )
