"""The speech LM in `transformers`, in this process, with our own sampling.

Repetition-aware sampling is possible, and done: the library computes logits, and draws are those of
our LM, by seed and step. Requests that arrive together share forward passes until the last of them
is done; others wait for the next batch.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from torch.nn import functional as F

from cosyserve.backends.protocols import LMRequest, SpeechTokens
from cosyserve.backends.vocabulary import Vocabulary
from cosyserve.contracts import MAX_WINDOW, FinishReason, Sampling
from cosyserve.errors import InputError
from cosyserve.models.lm.sampling import Rules, sample
from cosyserve.models.randomness import uniform

SEEDS = 1 << 63


@dataclass(eq=False)
class Row:
    """A request that waits or runs, and where its tokens go."""

    request: LMRequest
    pieces: asyncio.Queue[SpeechTokens | Exception] = field(default_factory=asyncio.Queue)
    drawn: list[int] = field(default_factory=list)
    left: bool = False  # nobody listens any more

    @property
    def sampling(self) -> Sampling:
        return self.request.sampling or Sampling()


class PaddedBatch:
    """Rows that are computed together; shorter prompts are padded on the left."""

    def __init__(self, prompts: Sequence[Sequence[int]], cache: Any, device: torch.device) -> None:
        longest = max(map(len, prompts))
        padded = [[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
        present = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        self.ids = torch.tensor(padded, device=device)  # [B, T] to feed now
        self.mask = torch.tensor(present, device=device)  # [B, L] of all positions so far
        self.cache = cache

    @property
    def positions(self) -> Tensor:
        return (self.mask.cumsum(-1) - 1).clamp(min=0)[:, -self.ids.shape[1] :]

    def feed(self, ids: Sequence[int], keep: Sequence[int]) -> None:
        """One id for each of the rows that go on, which are `keep` of those before."""
        device = self.ids.device
        if len(keep) < len(self.ids):
            kept = torch.tensor(keep, device=device)
            self.cache.batch_select_indices(kept)
            self.mask = self.mask[kept]
        self.ids = torch.tensor(ids, device=device)[:, None]
        self.mask = torch.cat((self.mask, torch.ones_like(self.ids)), dim=1)


class HuggingFaceLM:
    """Implements `LMBackend`, for one event loop."""

    def __init__(
        self,
        folder: Path,
        vocabulary: Vocabulary,
        *,
        device: str = "auto",
        dtype: str = "auto",
        max_batch: int = 16,
    ) -> None:
        """`folder` has the LM in its Hugging Face form."""
        try:
            from transformers import AutoModel, DynamicCache
        except ModuleNotFoundError as error:
            raise InputError(
                "the backend hf needs transformers: pip install 'cosyserve[hf]'"
            ) from error
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        precision = "auto" if dtype == "auto" else getattr(torch, dtype)
        self.vocabulary = vocabulary
        self.max_batch = max_batch
        self._cache = DynamicCache
        self._model = (
            AutoModel.from_pretrained(folder, dtype=precision, local_files_only=True)
            .to(device)
            .eval()
        )
        # The library's own head lacks the bias of CosyVoice2's; its rows for text are never drawn.
        rows = slice(vocabulary.text, vocabulary.ends.stop)
        with safe_open(folder / "model.safetensors", "pt") as tensors:

            def head(name: str) -> Tensor:
                rows_of_it: Tensor = tensors.get_slice(f"lm_head.{name}")[rows]
                return rows_of_it.to(self._model.device, self._model.dtype)

            self._weight = head("weight")
            self._bias = head("bias") if vocabulary.kind == "cosyvoice2" else None
        self._waiting: list[Row] = []
        self._running: asyncio.Task[None] | None = None

    async def generate(self, request: LMRequest) -> AsyncGenerator[SpeechTokens, None]:
        row = Row(request)
        self._waiting.append(row)
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        try:
            while True:
                piece = await row.pieces.get()
                if isinstance(piece, Exception):
                    raise piece
                yield piece
                if piece.finish is not None:
                    return
        finally:
            row.left = True

    async def close(self) -> None:
        if self._running:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running

    def begin(self, requests: Sequence[LMRequest]) -> PaddedBatch:
        prompts = [self.vocabulary.prompt(request) for request in requests]
        return PaddedBatch(prompts, self._cache(config=self._model.config), self._model.device)

    @torch.inference_mode()
    def logits(self, batch: PaddedBatch) -> Tensor:
        """Of what follows each row: float32 [B, speech tokens and ends]."""
        hidden = self._model(
            input_ids=batch.ids,
            attention_mask=batch.mask,
            position_ids=batch.positions,
            past_key_values=batch.cache,
            use_cache=True,
        ).last_hidden_state[:, -1]
        return F.linear(hidden, self._weight, self._bias).float().cpu()

    async def _run(self) -> None:
        """Batch after batch, until nobody waits."""
        while self._waiting:
            rows = [row for row in self._waiting if not row.left][: self.max_batch]
            self._waiting = [row for row in self._waiting if not row.left and row not in rows]
            try:
                await self._compute(rows)
            except Exception as error:
                for row in rows:
                    row.pieces.put_nowait(error)

    async def _compute(self, rows: list[Row]) -> None:
        if not rows:
            return
        batch = self.begin([row.request for row in rows])
        while rows:
            drawn = self._draw(rows, await asyncio.to_thread(self.logits, batch))
            pieces = [self._take(row, number) for row, number in zip(rows, drawn, strict=True)]
            for row, piece in zip(rows, pieces, strict=True):
                row.pieces.put_nowait(piece)
            keep = [n for n, piece in enumerate(pieces) if not (piece.finish or rows[n].left)]
            rows = [rows[number] for number in keep]
            if rows:
                batch.feed([self.vocabulary.text + row.drawn[-1] for row in rows], keep)

    def _draw(self, rows: Sequence[Row], logits: Tensor) -> list[int]:
        """One id of each row, -1 where the logits are no numbers."""
        step, vocabulary = len(rows[0].drawn), self.vocabulary
        first, stops = vocabulary.text, vocabulary.stops
        too_soon = torch.tensor([step < row.request.min_tokens for row in rows])
        forbidden = torch.zeros(logits.shape, dtype=torch.bool)
        forbidden[:, vocabulary.speech :] = True
        forbidden[:, stops.start - first : stops.stop - first] = too_soon[:, None]
        history = [([-1] * MAX_WINDOW + row.drawn)[-MAX_WINDOW:] for row in rows]
        seeds = torch.tensor([row.request.seed % SEEDS for row in rows])
        rules, top_k = Rules.of([r.sampling for r in rows]), max(r.sampling.top_k for r in rows)
        u1, u2 = uniform(seeds, step, 0), uniform(seeds, step, 1)
        ids = sample(logits, torch.tensor(history), u1, u2, forbidden, rules, top_k).ids
        drawn: list[int] = torch.where(logits.isfinite().all(-1), ids, -1).tolist()
        return drawn

    def _take(self, row: Row, drawn: int) -> SpeechTokens:
        if drawn < 0 or drawn >= self.vocabulary.speech:
            return SpeechTokens((), "error" if drawn < 0 else "stop")
        row.drawn.append(drawn)
        full = len(row.drawn) >= row.request.max_tokens
        finish: FinishReason | None = "length" if full else None
        return SpeechTokens((drawn,), finish)
