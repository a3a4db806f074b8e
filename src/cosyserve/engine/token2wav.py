"""Speech tokens to samples for many streams at once: flow, stretch and vocoder.

Knows no text and no LM. The state of a stream is its `Voicing`, owned by its session.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from cosyserve.contracts import CosyError, Floats, Voice
from cosyserve.engine.stretch import StretchState, stretch
from cosyserve.models import hift_stream
from cosyserve.models.flow import Flow, FlowPrompt, FlowState
from cosyserve.models.hift import HiFT
from cosyserve.models.hift_stream import VocoderState


@dataclass(frozen=True)
class Voicing:
    """A stream between two chunks."""

    flow: FlowState
    vocoder: VocoderState
    stretch: StretchState | None
    speed: float
    grid: int
    lookahead: int

    @property
    def prompt_tokens(self) -> int:
        return len(self.flow.prompt.tokens)


class Token2Wav:
    def __init__(self, flow: Flow, vocoder: HiFT) -> None:
        self.flow, self.vocoder = flow, vocoder

    def begin(self, voice: Voice, *, with_prompt: bool, seed: int, speed: float) -> Voicing:
        return Voicing(
            FlowState(self._prompt(voice, with_prompt)),
            hift_stream.begin(self.vocoder, seed),
            None,
            speed,
            self.flow.grid,
            self.flow.lookahead,
        )

    @torch.inference_mode()
    def advance(
        self, voicings: Sequence[Voicing], tokens: Sequence[Sequence[int]], final: Sequence[bool]
    ) -> list[tuple[Floats, Voicing]]:
        """The next samples of streams, given all their tokens so far (look-ahead included)."""
        ids = [self._ids(row) for row in tokens]
        flows = self.flow.advance([voicing.flow for voicing in voicings], ids, final)
        return self._vocode(voicings, flows, final)

    @torch.inference_mode()
    def whole(
        self, voicings: Sequence[Voicing], tokens: Sequence[Sequence[int]]
    ) -> list[tuple[Floats, Voicing]]:
        """Whole utterances at once, with full attention."""
        prompts = [voicing.flow.prompt for voicing in voicings]
        mels = self.flow.whole(prompts, [self._ids(row) for row in tokens])
        flows = [(mel, voicing.flow) for mel, voicing in zip(mels, voicings, strict=True)]
        return self._vocode(voicings, flows, [True] * len(flows))

    def _vocode(
        self,
        voicings: Sequence[Voicing],
        flows: Sequence[tuple[Tensor, FlowState]],
        final: Sequence[bool],
    ) -> list[tuple[Floats, Voicing]]:
        mels, stretches = [], []
        for voicing, (mel, _), last in zip(voicings, flows, final, strict=True):
            state = voicing.stretch
            if voicing.speed != 1.0:
                mel, state = stretch(mel, state, voicing.speed, last)
            mels.append(mel)
            stretches.append(state)
        spoken = hift_stream.advance(self.vocoder, [v.vocoder for v in voicings], mels, final)
        if not all(torch.isfinite(samples).all() for samples, _ in spoken):
            raise CosyError("the model computed NaN instead of speech: its weights are broken")
        return [
            (samples.cpu().numpy(), replace(voicing, flow=flow, stretch=state, vocoder=vocoder))
            for voicing, (_, flow), state, (samples, vocoder) in zip(
                voicings, flows, stretches, spoken, strict=True
            )
        ]

    def _prompt(self, voice: Voice, with_prompt: bool) -> FlowPrompt:
        start = voice.flow_start if with_prompt else len(voice.speech_tokens)
        frames = start * len(voice.mel) // max(1, len(voice.speech_tokens))
        like = self.flow.encoder_proj.weight
        return FlowPrompt(
            torch.from_numpy(voice.speech_tokens[start:].astype(np.int64)).to(like.device),
            torch.from_numpy(voice.mel[frames:]).to(like),
            torch.from_numpy(voice.embedding).to(like),
        )

    def _ids(self, tokens: Sequence[int]) -> Tensor:
        return torch.tensor(tokens, device=self.flow.encoder_proj.weight.device)
