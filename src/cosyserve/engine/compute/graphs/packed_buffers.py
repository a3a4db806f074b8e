"""Static memory that a packed flow is computed on, and what the host writes there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cosyserve.contracts import FRAMES_PER_TOKEN
from cosyserve.engine.compute.graphs.device_queue import DeviceQueue
from cosyserve.models.flow.flow import Flow
from cosyserve.models.flow.masks import chunk_columns
from cosyserve.models.flow.stream import FlowPrompt, FlowState

ROW_NUMBERS = 4  # that the host tells of each row: its count and its prefix


@dataclass(frozen=True)
class PackedBuffers:
    """All that is computed on; packs of all sizes use the first part of it."""

    numbers: Tensor  # [ROW_NUMBERS * R + S]: the next three, one behind another
    counts: Tensor  # [R] tokens of each row that become frames
    prefixes: Tensor  # [R, 3] as of `PrefixCache.columns`
    tokens: Tensor  # [S] behind each row's tokens those it looks at; -1: none
    chunks: Tensor  # [T, 3], as of `RowChunks` of all rows in one, for a flow that remembers
    speaker: Tensor  # [R, E]
    prompt: Tensor  # [F, mel]
    mu: Tensor  # [F, mel]
    sight: Tensor  # [5, 2F] int32: `RowSpans`, and `Hidden` or `Prefixes`; none is of known frames
    tiles: Tensor  # int32, of which the first are `RowSpans.tiles`
    x: Tensor  # [F, mel] float32
    rows: Tensor  # [2F, 4 mel]: all of an estimate's input; the second half without conditions
    lookahead: int
    spare: int  # tokens behind a row's own
    runs: int  # rows at most, and blanks behind the last, in all copies for guidance

    @classmethod
    def of(cls, flow: Flow, size: int, rows: int, spare: int) -> PackedBuffers:
        """For packs of up to so many tokens in so many rows, each with `spare` ones to look at."""
        config, like = flow.config, flow.weight
        frames, both = FRAMES_PER_TOKEN * size, config.copies * FRAMES_PER_TOKEN * size
        told, runs = ROW_NUMBERS * rows, config.copies * (rows + 1)
        numbers = torch.zeros(told + size + spare * rows, dtype=torch.long, device=like.device)
        return cls(
            numbers=numbers,
            counts=numbers[:rows],
            prefixes=numbers[rows:told].view(rows, -1),
            tokens=numbers[told:],
            chunks=torch.zeros(size, 3, dtype=torch.long, device=like.device),
            speaker=like.new_zeros(rows, config.speaker),
            prompt=like.new_zeros(frames, config.mel),
            mu=like.new_zeros(frames, config.mel),
            sight=torch.zeros(5, both, dtype=torch.int32, device=like.device),
            tiles=torch.zeros(both + runs, dtype=torch.int32, device=like.device),
            x=torch.zeros(frames, config.mel, device=like.device),
            rows=like.new_zeros(both, 4 * config.mel),
            lookahead=flow.lookahead,
            spare=spare,
            runs=runs,
        )

    def write(
        self,
        queue: DeviceQueue,
        prompts: Sequence[FlowPrompt],
        tokens: Sequence[Sequence[int]],
        counts: Sequence[int],
        prefixes: Sequence[Sequence[int]],
        size: int,
        *,
        apart: bool,
    ) -> None:
        """Rows of prompts and tokens, in a pack of a size. `apart`: each prompt looks at its own
        first tokens, not at those behind it."""
        ahead, rows = self.lookahead, len(self.counts)
        told = ROW_NUMBERS * rows
        numbers = np.full(told + size + self.spare * rows, -1)
        numbers[:told] = 0
        numbers[: len(counts)] = counts
        columns = np.ravel(prefixes)
        numbers[rows : rows + len(columns)] = columns
        ids, begin = numbers[told:], 0
        for prompt, row, count in zip(prompts, tokens, counts, strict=True):
            said = begin + len(prompt.tokens) + (ahead if apart else 0)
            ids[said : said + len(row)] = row
            begin += count + self.spare
        queue.write(self.numbers[: len(numbers)], numbers)
        self.prompt[: FRAMES_PER_TOKEN * sum(counts)].zero_()
        token = frame = 0
        for index, (prompt, count) in enumerate(zip(prompts, counts, strict=True)):
            own = torch.cat((prompt.tokens, prompt.tokens[:ahead])) if apart else prompt.tokens
            self.tokens[token : token + len(own)].copy_(own)
            self.prompt[frame : frame + len(prompt.mel)].copy_(prompt.mel)
            self.speaker[index].copy_(prompt.speaker)
            token, frame = token + count + self.spare, frame + FRAMES_PER_TOKEN * count

    def write_chunks(
        self, queue: DeviceQueue, states: Sequence[FlowState], counts: Sequence[int]
    ) -> None:
        """The chunks of each row; without states, each row is one chunk."""
        columns, begin = [], 0
        for index, count in enumerate(counts):
            start, ends = 0, []
            if states:
                start = len(states[index].prompt.tokens)
                ends = [start + end for end in states[index].ends]
            columns.append(begin + chunk_columns(start, ends, count))
            begin += count
        queue.write(self.chunks[:begin], np.concatenate(columns, axis=1).T)
