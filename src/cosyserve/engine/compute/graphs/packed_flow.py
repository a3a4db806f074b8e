"""The flow of several streams in one pack, where there are kernels for it: rows of any lengths one
behind another, so that little is computed but frames. Only the whole pack is padded, to one of a
few sizes. What was computed of a prompt before is not computed again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Sequence
from enum import Enum, auto
from itertools import accumulate
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cosyserve.contracts import FRAMES_PER_TOKEN
from cosyserve.engine.compute import gpu_memory
from cosyserve.engine.compute.graphs.device_queue import CapturedGraphs, DeviceQueue
from cosyserve.engine.compute.graphs.packed_buffers import PackedBuffers
from cosyserve.engine.compute.graphs.prefix_cache import MAX_FRAMES, Borrowed, PrefixCache
from cosyserve.models.config import DiTConfig
from cosyserve.models.flow.cfm import schedule
from cosyserve.models.flow.flow import Flow
from cosyserve.models.flow.masks import RowChunks
from cosyserve.models.flow.packing import Hidden, PackedTokens, Prefixes, RowSpans, Sight, pack
from cosyserve.models.flow.stream import FlowPrompt, FlowState
from cosyserve.models.fused import fused_encoder, fused_estimator

if TYPE_CHECKING:
    from cosyserve.models.flow.fused.dit import FusedDiT
    from cosyserve.models.flow.fused.encoder import FusedEncoder, FusedLookahead
    from cosyserve.models.flow.fused.rotary_dit import FusedRotaryDiT
    from cosyserve.models.flow.fused.unet import FusedUNet

    FusedEstimator = FusedUNet | FusedRotaryDiT | FusedDiT
    PackedEncoder = FusedEncoder | FusedLookahead

# Tokens of a pack, prompts included. A step takes as long with few of them as with a hundred.
SIZES = (
    *(32, 64, 96, 112, 128, 144, 160, 176, 200, 224, 256, 288, 320, 384, 448, 512, 576, 640, 768),
    *(896, 1024, 1216, 1408, 1664, 1920, 2240, 2624, 3072, 3584, 4096),
)


class PackedWork(Enum):
    """What a graph computes: the conditions of whole texts or of chunks, what the Euler steps begin
    with, or one of them; that of chunks looks back on prefixes, where such are kept."""

    ENCODE_WHOLE = auto()
    ENCODE_CHUNK = auto()
    BEGIN = auto()
    EULER_WHOLE = auto()
    EULER_CHUNK = auto()


class PackedFlow:
    def __init__(
        self,
        flow: Flow,
        queue: DeviceQueue,
        max_rows: int,
        encoder: PackedEncoder,
        estimator: FusedEstimator,
        prefixes: PrefixCache | None = None,
        *,
        streams: bool = True,
    ) -> None:
        """Without `streams`, for whole texts alone."""
        self.flow, self.queue, self.max_rows, self.prefixes = flow, queue, max_rows, prefixes
        self._streams = streams
        self._encoder, self._estimator = encoder, estimator
        device = flow.weight.device
        most = min(gpu_memory.max_tokens(device), flow.config.max_frames // FRAMES_PER_TOKEN)
        self.sizes = [size for size in SIZES if size <= most]
        self._spare = flow.lookahead * (2 if flow.config.remembers else 1)  # tokens of a row
        strides = [stride for _, stride in schedule(flow.config.steps)]
        with queue.use():
            self._strides = torch.tensor(strides, device=device)
            self._at = torch.zeros(1, dtype=torch.long, device=device)  # number of the Euler step
            self._chunk = torch.zeros(1, dtype=torch.long, device=device)  # frames of the mask's
            self._noise = flow.noise(0, FRAMES_PER_TOKEN * self.sizes[-1], device).T.contiguous()
            self._buffers = PackedBuffers.of(flow, self.sizes[-1], max_rows, self._spare)
        self._graphs = CapturedGraphs(queue, self._compute)

    @classmethod
    def of(
        cls,
        flow: Flow,
        queue: DeviceQueue,
        max_rows: int,
        prefixes: PrefixCache | None = None,
        *,
        streams: bool = True,
    ) -> PackedFlow | None:
        """None where there are no kernels for it. `prefixes` of another queue, to share them."""
        with queue.use():
            times = [time for time, _ in schedule(flow.config.steps)]
            estimator = fused_estimator(flow.estimator, times, FRAMES_PER_TOKEN * SIZES[-1])
            encoder = fused_encoder(flow.encoder, SIZES[-1]) if estimator else None
            if estimator is None or encoder is None:
                return None
            if streams and prefixes is None:
                prefixes = PrefixCache.of(flow, estimator.pasts(MAX_FRAMES), max_rows)
        return cls(flow, queue, max_rows, encoder, estimator, prefixes, streams=streams)

    def warm_up(self) -> int:
        """Captures every size -> how many."""
        kinds = [PackedWork.ENCODE_WHOLE, PackedWork.BEGIN, PackedWork.EULER_WHOLE]
        if self._streams:
            kinds.append(PackedWork.ENCODE_CHUNK)
        if self.prefixes:
            kinds.append(PackedWork.EULER_CHUNK)
        self._graphs.capture((kind, size) for size in self.sizes for kind in kinds)
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
        prompts = [state.prompt for state in states]
        chunked = streaming and self.flow.config.remembers
        borrowed, done = self._borrow(prompts if streaming else ()), False
        try:
            prefixes, size = self._columns(borrowed), self._size(counts)
            self._buffers.write(self.queue, prompts, tokens, counts, prefixes, size, apart=chunked)
            if self.flow.config.remembers:
                self._buffers.write_chunks(self.queue, states if streaming else (), counts)
            own = list(counts)  # that are computed
            for row, (_, known, _) in enumerate(prefixes):
                own[row] -= known
            encode = PackedWork.ENCODE_CHUNK if streaming else PackedWork.ENCODE_WHOLE
            looks_back = streaming and self.prefixes
            step = PackedWork.EULER_CHUNK if looks_back else PackedWork.EULER_WHOLE
            self._graphs.run((encode, size))
            self._graphs.run((PackedWork.BEGIN, self._size(own)))
            yield
            for _ in range(self.flow.config.steps):
                self._graphs.run((step, self._size(own)))
                yield
            done = True
        finally:
            self._give_back(borrowed, done)
        spoken = [
            count - len(state.prompt.tokens) - state.tokens
            for state, count in zip(states, counts, strict=True)
        ]
        return [
            self._buffers.x[FRAMES_PER_TOKEN * (end - said) : FRAMES_PER_TOKEN * end].T
            for said, end in zip(spoken, accumulate(own), strict=True)
        ]

    def _size(self, counts: Sequence[int]) -> int:
        """Of the graphs for a pack of rows of so many tokens."""
        return self.sizes[bisect_left(self.sizes, sum(counts))]

    def _borrow(self, prompts: Sequence[FlowPrompt]) -> list[Borrowed | None]:
        return [self.prefixes.borrow(prompt) for prompt in prompts] if self.prefixes else []

    def _give_back(self, borrowed: Sequence[Borrowed | None], done: bool) -> None:
        if self.prefixes and any(borrowed):
            end = self.queue.mark()
            for one in filter(None, borrowed):
                self.prefixes.give_back(one, end, done=done)

    def _columns(self, borrowed: Sequence[Borrowed | None]) -> list[list[int]]:
        return self.prefixes.columns(borrowed) if self.prefixes else []

    def _compute(self, work: tuple[PackedWork, int]) -> None:
        kind, size = work
        if kind is PackedWork.BEGIN:
            self._begin(size)
        elif kind in (PackedWork.EULER_WHOLE, PackedWork.EULER_CHUNK):
            self._step(size, streaming=kind is PackedWork.EULER_CHUNK)
        else:
            self._encode(size, streaming=kind is PackedWork.ENCODE_CHUNK)

    def _encode(self, size: int, streaming: bool) -> None:
        """What the tokens of whole rows say about their frames."""
        flow, buffers, ahead = self.flow, self._buffers, self.flow.lookahead
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
        buffers.mu[: len(mu)].copy_(mu)
        streamed = flow.config.encoder.chunk if streaming and chunks is None else SIZES[-1]
        self._chunk.fill_(FRAMES_PER_TOKEN * streamed)
        self._at.zero_()

    def _begin(self, size: int) -> None:
        """What the Euler steps have in common, of the frames that are computed."""
        flow, buffers = self.flow, self._buffers
        frames, mel, copies = FRAMES_PER_TOKEN * size, flow.config.mel, flow.config.copies
        line, known, wanted = buffers.prefixes.T
        spans, row = pack(buffers.counts - known, size)
        row = row.repeat_interleave(FRAMES_PER_TOKEN)
        parts: list[Tensor] = []
        if flow.config.remembers:
            chunks = RowChunks(*buffers.chunks[:size].T)
            spans = spans.up_to(chunks.end)
            hidden = self._hidden(chunks)
            parts += hidden.again() if copies == 2 else hidden
        spans = spans.repeated(FRAMES_PER_TOKEN)
        if self.prefixes:
            times = FRAMES_PER_TOKEN * (spans.ends > 0)  # behind the last row there is nothing
            prefixes = Prefixes(line[row], times * known[row], times * wanted[row])
            parts += prefixes.again() if copies == 2 else prefixes
        position = spans.positions() + FRAMES_PER_TOKEN * known[row]
        at = position + FRAMES_PER_TOKEN * (buffers.counts.cumsum(0) - buffers.counts)[row]
        at = torch.where(spans.ends > 0, at, 0)  # what is behind all rows may be behind all frames
        spans = spans.again() if copies == 2 else spans
        tiles = self._estimator.query_tiles(spans, buffers.runs)
        buffers.tiles[: len(tiles)].copy_(tiles)
        parts = [*spans, *parts]
        for buffer, part in zip(buffers.sight, parts, strict=False):
            buffer[: len(part)].copy_(part)
        x, rows = buffers.x[:frames], buffers.rows[: copies * frames]
        x.copy_(self._noise[position])
        rows.zero_()
        rows[:, :mel].copy_(x.repeat(copies, 1))
        rows[:frames, mel : 2 * mel].copy_(buffers.mu[at])
        rows[:frames, 2 * mel : 3 * mel].copy_(flow.speaker(buffers.speaker)[row])
        rows[:frames, 3 * mel :].copy_(buffers.prompt[at])

    def _hidden(self, chunks: RowChunks) -> Hidden:
        """What an estimate does not see of the chunks before."""
        estimator = self.flow.config.estimator
        assert isinstance(estimator, DiTConfig)
        first, prompt = (
            FRAMES_PER_TOKEN * part.repeat_interleave(FRAMES_PER_TOKEN)
            for part in (chunks.first, chunks.prompt)
        )
        return Hidden.between(prompt, first - estimator.history)

    def _step(self, size: int, streaming: bool) -> None:
        buffers, frames = self._buffers, FRAMES_PER_TOKEN * size
        both = self.flow.config.copies * frames
        rows, sight = buffers.rows[:both], buffers.sight[:, :both]
        tiles = self._estimator.max_tiles(both, buffers.runs)
        seen = Sight(
            RowSpans(*sight[:2]), self._chunk, tiles=buffers.tiles[:tiles] if tiles else None
        )
        if self.flow.config.remembers:
            seen = seen._replace(hidden=Hidden(*sight[2:4]))
        elif streaming and self.prefixes:
            memories = self.prefixes.memories
            seen = seen._replace(prefixes=Prefixes(*sight[2:]), memories=memories)
        v = self._estimator(rows, self._at, seen)
        guidance = self.flow.config.guidance
        self._estimator.euler(v, buffers.x[:frames], rows, self._strides, self._at, guidance)
