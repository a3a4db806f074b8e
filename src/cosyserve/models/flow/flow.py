"""From speech tokens to mel frames: whole rows in a batch, or chunk by chunk with state passed in.

A streamed flow with a chunk mask (CosyVoice2's U-Net, CosyVoice3's DiT) is computed anew over all
tokens so far, which is exact on the chunk grid. Step-Audio2's DiT keeps caches, or is computed anew
with a mask of the chunks that it was streamed in, which gives the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyserve.contracts import FRAMES_PER_TOKEN
from cosyserve.errors import InputError
from cosyserve.models.config import DiTConfig, FlowConfig, LookaheadConfig, RotaryDiTConfig
from cosyserve.models.flow.cfm import Velocity, fixed_noise, solve
from cosyserve.models.flow.dit import DiT, DiTCache
from cosyserve.models.flow.encoder import UpsamplingConformer
from cosyserve.models.flow.foreign import ForeignEstimator
from cosyserve.models.flow.lookahead import LookaheadEncoder
from cosyserve.models.flow.masks import RowChunks, attention_bias, chunks_bias, valid
from cosyserve.models.flow.rotary_dit import RotaryDiT
from cosyserve.models.flow.stream import FlowCache, FlowPrompt, FlowState
from cosyserve.models.flow.unet import UNet

Estimator = UNet | DiT | RotaryDiT | ForeignEstimator


@dataclass(frozen=True)
class FlowBatch:
    """Rows padded on the right; tokens, lengths and `encoded` count the prompt."""

    tokens: Tensor  # [B, T]
    lengths: Tensor  # [B] tokens given
    encoded: tuple[int, ...]  # tokens that become frames; the others are only looked at
    inside: Tensor | None  # [B, size] which of them there are; None: `size` in every row
    size: int  # max(encoded)
    prompt: Tensor  # [B, mel, 2*size], zero after each row's prompt
    speaker: Tensor  # [B, E]
    # Of streams of a flow that remembers; `tokens` are then as `UpsamplingConformer.chunked` wants
    # them, -1 where there is none.
    chunks: RowChunks | None = None


def _estimator(config: FlowConfig) -> Estimator:
    estimator = config.estimator
    if isinstance(estimator, DiTConfig):
        return DiT(estimator, config.mel)
    if isinstance(estimator, RotaryDiTConfig):
        return RotaryDiT(estimator, config.mel)
    return UNet(estimator, config.mel)


class Flow(nn.Module):
    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        self.config = config
        size = config.encoder.size
        self.input_embedding = nn.Embedding(config.speech_tokens, size)
        self.spk_embed_affine_layer = nn.Linear(config.speaker, config.mel)
        self.encoder: UpsamplingConformer | LookaheadEncoder
        self.encoder_proj: nn.Linear | nn.Identity
        if isinstance(config.encoder, LookaheadConfig):
            self.encoder, self.encoder_proj = LookaheadEncoder(config.encoder), nn.Identity()
        else:
            self.encoder = UpsamplingConformer(config.encoder)
            self.encoder_proj = nn.Linear(size, config.mel)
        self.decoder = nn.ModuleDict({"estimator": _estimator(config)})

    @property
    def estimator(self) -> Estimator:
        estimator = self.decoder["estimator"]
        assert isinstance(estimator, Estimator)
        return estimator

    @property
    def weight(self) -> Tensor:
        """One of the weights: all are on its device, of its type."""
        return self.spk_embed_affine_layer.weight

    @property
    def lookahead(self) -> int:
        return self.config.encoder.lookahead

    @property
    def grid(self) -> int:
        """A streamed chunk is exact when prompt and speech end on a multiple of this."""
        return self.config.grid

    def forward(self, batch: FlowBatch, streaming: bool, noise: Tensor | None = None) -> Tensor:
        """All frames of all rows, prompts included: [B, mel, 2*size]."""
        mu, bias = self.conditions(batch, streaming), self.attention_bias(batch, streaming)

        def velocity(
            x: Tensor, mu: Tensor, speaker: Tensor, prompt: Tensor, t: Tensor, step: int
        ) -> Tensor:
            return self.estimator(x, mu, speaker, prompt, t, bias)

        noise = self.noise(0, mu.shape[2], mu.device) if noise is None else noise
        speaker, prompt = self.speaker(batch.speaker), batch.prompt.to(mu.dtype)
        return self.solve(velocity, noise.expand_as(mu), mu, speaker, prompt)

    def attention_bias(self, batch: FlowBatch, streaming: bool) -> Tensor | None:
        """Which frame the estimator lets see which; rows are doubled for guidance."""
        if batch.chunks is not None:
            assert isinstance(self.config.estimator, DiTConfig)
            history = self.config.estimator.history
            bias = chunks_bias(batch.chunks, FRAMES_PER_TOKEN, history, self.weight)
            return torch.cat((bias, bias)) if self.config.guidance else bias
        chunk = FRAMES_PER_TOKEN * self.config.encoder.chunk if streaming else 0
        inside = batch.inside
        if inside is not None:
            inside = inside.repeat_interleave(FRAMES_PER_TOKEN, dim=1)
            inside = torch.cat((inside, inside)) if self.config.guidance else inside
        return attention_bias(inside, FRAMES_PER_TOKEN * batch.size, chunk, self.weight)

    def conditions(self, batch: FlowBatch, streaming: bool) -> Tensor:
        """What the tokens say about each frame: [B, mel, 2*size]."""
        if batch.chunks is not None:
            assert isinstance(self.encoder, UpsamplingConformer)
            x = self.input_embedding(batch.tokens.clamp(min=0))
            frames = self.encoder.chunked(x, batch.tokens >= 0, batch.chunks)
        else:
            x = self.input_embedding(batch.tokens)
            frames = self.encoder(x, batch.lengths, batch.inside, batch.size, streaming)
        return self.encoder_proj(frames).transpose(1, 2)

    def speaker(self, embedding: Tensor) -> Tensor:
        """[B, E] -> [B, mel]."""
        return self.spk_embed_affine_layer(F.normalize(embedding, dim=1))

    def whole(self, prompts: Sequence[FlowPrompt], tokens: Sequence[Tensor]) -> list[Tensor]:
        """Whole utterances with full attention: [mel, 2 * tokens] per row."""
        batch = self._collate(prompts, tokens, [True] * len(prompts))
        return self.speech(self(batch, streaming=False), batch.encoded, prompts, [0] * len(prompts))

    def advance(
        self, states: Sequence[FlowState], tokens: Sequence[Tensor], final: Sequence[bool]
    ) -> list[tuple[Tensor, FlowState]]:
        """The next frames of streams, given all their tokens so far: [mel, frames] and the state.

        Unless final, the last `lookahead` tokens are only looked at.
        """
        if self.config.remembers:
            return [self._extend(*row) for row in zip(states, tokens, final, strict=True)]
        prompts = [state.prompt for state in states]
        batch = self._collate(prompts, tokens, final)
        done = [state.tokens for state in states]
        mels = self.speech(self(batch, streaming=True), batch.encoded, prompts, done)
        return [(mel, state.after(mel)) for mel, state in zip(mels, states, strict=True)]

    def _collate(
        self, prompts: Sequence[FlowPrompt], tokens: Sequence[Tensor], final: Sequence[bool]
    ) -> FlowBatch:
        rows = [torch.cat((p.tokens, t)) for p, t in zip(prompts, tokens, strict=True)]
        encoded = tuple(
            len(row) - (0 if last else self.lookahead)
            for row, last in zip(rows, final, strict=True)
        )
        size, ragged = max(encoded), min(encoded) < max(encoded)
        self._check_frames(FRAMES_PER_TOKEN * size)
        speaker = torch.stack([p.speaker for p in prompts])
        prompt = speaker.new_zeros(len(rows), self.config.mel, FRAMES_PER_TOKEN * size)
        for row, p in zip(prompt, prompts, strict=True):
            row[:, : len(p.mel)] = p.mel.T
        inside = valid(torch.tensor(encoded, device=speaker.device), size) if ragged else None
        return FlowBatch(
            tokens=nn.utils.rnn.pad_sequence(rows, batch_first=True),
            lengths=torch.tensor([len(row) for row in rows], device=speaker.device),
            encoded=encoded,
            inside=inside,
            size=size,
            prompt=prompt,
            speaker=speaker,
        )

    @staticmethod
    def speech(
        mel: Tensor, encoded: Sequence[int], prompts: Sequence[FlowPrompt], done: Sequence[int]
    ) -> list[Tensor]:
        """The frames of each row behind its prompt and the tokens that are done."""
        first = [FRAMES_PER_TOKEN * (len(p.tokens) + n) for p, n in zip(prompts, done, strict=True)]
        last = [FRAMES_PER_TOKEN * n for n in encoded]
        return [row[:, a:b] for row, a, b in zip(mel, first, last, strict=False)]

    def _extend(self, state: FlowState, tokens: Tensor, final: bool) -> tuple[Tensor, FlowState]:
        cache = state.cache or self._remembered(state, tokens)
        chunk = tokens[state.tokens :]
        mel, cache = self.extend(chunk, state.prompt.speaker, None, cache, last=final)
        cache = self.forget(cache, FRAMES_PER_TOKEN * len(state.prompt.tokens))
        return mel, replace(state.after(mel), cache=cache)

    def _remembered(self, state: FlowState, tokens: Tensor) -> FlowCache | None:
        """The prompt's cache, and that of chunks which were computed without one."""
        prompt, cache = state.prompt, None
        if len(prompt.tokens):
            start = torch.cat((prompt.tokens, prompt.tokens[: self.lookahead]))
            _, cache = self.extend(start, prompt.speaker, prompt.mel, None, last=False)
        for begin, end in pairwise((0, *state.ends)):
            chunk = tokens[begin : end + self.lookahead]
            _, cache = self.extend(chunk, prompt.speaker, None, cache, last=False)
            cache = self.forget(cache, FRAMES_PER_TOKEN * len(prompt.tokens))
        return cache

    def extend(
        self,
        tokens: Tensor,
        speaker: Tensor,
        prompt: Tensor | None,
        cache: FlowCache | None,
        *,
        last: bool,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, FlowCache]:
        """The next chunk of a DiT flow: tokens [n] with look-ahead -> [mel, frames], the cache.

        prompt [frames, mel] is given for the prompt's own chunk; `noise` [mel, frames] replaces
        the fixed noise.
        """
        estimator = self.estimator
        assert isinstance(estimator, DiT | ForeignEstimator)
        assert isinstance(self.encoder, UpsamplingConformer)
        x, encoder = self.encoder.extend(
            self.input_embedding(tokens[None]), cache.encoder if cache else None, last
        )
        mu = self.encoder_proj(x).transpose(1, 2)
        frames = mu.shape[2]
        at = cache.frames if cache else 0
        condition = torch.zeros_like(mu) if prompt is None else prompt.T[None].to(mu.dtype)
        steps: list[DiTCache] = []

        def velocity(
            x: Tensor, mu: Tensor, speaker: Tensor, prompt: Tensor, t: Tensor, step: int
        ) -> Tensor:
            past = cache.steps[step] if cache else None
            v, kept = estimator.extend(x, mu, speaker, prompt, t, past)
            steps.append(kept)
            return v

        noise = self.noise(at, frames, mu.device) if noise is None else noise
        mel = self.solve(velocity, noise[None], mu, self.speaker(speaker[None]), condition)
        return mel[0], FlowCache(encoder, tuple(steps), at + frames)

    def forget(self, cache: FlowCache, prompt_frames: int) -> FlowCache:
        """Bounds the cache: keeps the prompt's frames and the last `history` frames."""
        assert isinstance(self.config.estimator, DiTConfig)
        history = self.config.estimator.history

        def cut(step: DiTCache) -> DiTCache:
            kept = step.attention
            if kept.shape[3] > prompt_frames + history:
                kept = torch.cat((kept[..., :prompt_frames, :], kept[..., -history:, :]), dim=3)
            return replace(step, attention=kept)

        return replace(cache, steps=tuple(cut(step) for step in cache.steps))

    def solve(
        self, velocity: Velocity, noise: Tensor, mu: Tensor, speaker: Tensor, prompt: Tensor
    ) -> Tensor:
        """As `cfm.solve`, with the steps and the guidance of this flow."""
        return solve(
            velocity,
            noise,
            mu,
            speaker,
            prompt,
            steps=self.config.steps,
            guidance=self.config.guidance,
        )

    def noise(self, start: int, frames: int, device: torch.device) -> Tensor:
        """What absolute frames begin with: [mel, frames]."""
        self._check_frames(start + frames)
        noise = fixed_noise(self.config.mel, self.config.max_frames, device)
        return noise[:, start : start + frames]

    def _check_frames(self, frames: int) -> None:
        if frames > self.config.max_frames:
            raise InputError(
                f"prompt and speech are {frames / 50:.0f} s together; "
                f"at most {self.config.max_frames / 50:.0f} s fit: use shorter text"
            )
