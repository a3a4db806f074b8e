"""A streamed flow with a chunk mask, each frame computed once.

Under the mask, what layers keep of whole chunks never changes: a stream keeps it, and a voice's
prompt is kept for all streams. `Flow.advance` is its reference, and costs no memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from cosyserve.contracts import FRAMES_PER_TOKEN
from cosyserve.engine.compute.limits import MAX_PREFIX_TOKENS
from cosyserve.models.config import FlowConfig, UNetConfig
from cosyserve.models.flow.encoder import UpsamplingConformer
from cosyserve.models.flow.flow import Flow
from cosyserve.models.flow.masks import chunk_bias
from cosyserve.models.flow.stream import FlowPrompt, FlowState
from cosyserve.models.flow.unet import FlowPast, LookBack, UNet

MAX_FRAME_BYTES = 64 << 10  # of what is kept: then a minute of speech is below 200 MB
MAX_VOICES = 16  # whose prompts are kept


def incremental_flow(flow: Flow) -> IncrementalFlow | None:
    """The flow with what it keeps, where that is little: of a U-Net on a CPU that is small."""
    small = isinstance(flow.estimator, UNet) and _frame_bytes(flow.config) <= MAX_FRAME_BYTES
    return IncrementalFlow(flow) if small and flow.weight.device.type == "cpu" else None


def _frame_bytes(config: FlowConfig) -> int:
    """Keys and values of a frame, in all layers of the estimator and all Euler steps."""
    unet = config.estimator
    assert isinstance(unet, UNetConfig)
    layers = unet.blocks * (unet.mid + 2)
    return 4 * 2 * unet.heads * unet.head_dim * layers * config.steps * config.copies


class IncrementalFlow:
    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._voices: OrderedDict[str, FlowPast] = OrderedDict()

    def advance(
        self, states: Sequence[FlowState], tokens: Sequence[Tensor], final: Sequence[bool]
    ) -> list[tuple[Tensor, FlowState]]:
        """As `Flow.advance`."""
        return [self._advance(*row) for row in zip(states, tokens, final, strict=True)]

    def _advance(self, state: FlowState, tokens: Tensor, final: bool) -> tuple[Tensor, FlowState]:
        prompt, chunk = state.prompt, self.flow.config.encoder.chunk
        row, done = torch.cat((prompt.tokens, tokens)), len(prompt.tokens) + state.tokens
        if len(row) - (0 if final else self.flow.lookahead) <= done:
            mel = prompt.mel.new_zeros(self.flow.config.mel, 0)
            return mel, replace(state.after(mel), past=state.past)
        past = state.past or self._prompt(prompt)
        begin = past.tokens if past else 0
        mel, after = self._extend(row[begin:], prompt, past, last=final)
        mel = mel[:, FRAMES_PER_TOKEN * (done - begin) :]
        # A chunk that is not whole will be another one with the next tokens.
        return mel, replace(state.after(mel), past=past if after.tokens % chunk else after)

    def _prompt(self, prompt: FlowPrompt) -> FlowPast | None:
        """Of the prompt's chunks that do not depend on what is said."""
        chunk, ahead = self.flow.config.encoder.chunk, self.flow.lookahead
        whole = min(len(prompt.tokens) - ahead, MAX_PREFIX_TOKENS) // chunk * chunk
        if whole <= 0 or not prompt.key:
            return None
        past = self._voices.pop(prompt.key, None)
        if past is None:
            _, past = self._extend(prompt.tokens[: whole + ahead], prompt, None, last=False)
        self._voices[prompt.key] = past
        if len(self._voices) > MAX_VOICES:
            self._voices.popitem(last=False)
        return past

    def _extend(
        self, tokens: Tensor, prompt: FlowPrompt, past: FlowPast | None, *, last: bool
    ) -> tuple[Tensor, FlowPast]:
        """The next tokens [n] of a row, with look-ahead -> [mel, frames], and what is kept."""
        flow, chunk = self.flow, self.flow.config.encoder.chunk
        encoder, estimator = flow.encoder, flow.estimator
        assert isinstance(encoder, UpsamplingConformer)
        assert isinstance(estimator, UNet)
        begin = past.tokens if past else 0
        embedded = flow.input_embedding(tokens[None])
        x, kept = encoder.extend(embedded, past.encoder if past else None, last, chunk)
        mu = flow.encoder_proj(x).transpose(1, 2)
        first, frames = FRAMES_PER_TOKEN * begin, mu.shape[2]
        noise = flow.noise(first, frames, mu.device)[None]
        given = prompt.mel[first : first + frames].T
        condition = torch.zeros_like(mu)
        condition[0, :, : given.shape[1]] = given
        bias = chunk_bias(frames, first + frames, FRAMES_PER_TOKEN * chunk, mu)
        steps = []

        def velocity(
            x: Tensor, mu: Tensor, speaker: Tensor, prompt: Tensor, t: Tensor, step: int
        ) -> Tensor:
            back = LookBack(past.steps[step] if past else ())
            v: Tensor = estimator(x, mu, speaker, prompt, t, bias, back)
            steps.append(back.kept)
            return v

        mel = flow.solve(velocity, noise, mu, flow.speaker(prompt.speaker[None]), condition)
        return mel[0], FlowPast(begin + frames // FRAMES_PER_TOKEN, kept, tuple(steps))
