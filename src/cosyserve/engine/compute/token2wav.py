"""Speech tokens to samples for many streams at once: flow, stretch and vocoder.

Knows no text and no LM. The state of a stream is its `Voicing`, owned by its session.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from cosyserve.contracts import CheckpointError, CosyError, Floats, Voice
from cosyserve.engine.compute.device_queue import LATER, SOON, Lane, Reading
from cosyserve.engine.compute.flow_graphs import FlowSteps
from cosyserve.engine.compute.hops import HOP_TOKENS
from cosyserve.engine.compute.stretch import StretchState, stretch
from cosyserve.engine.compute.vocoder_graphs import VocoderSteps
from cosyserve.models.config import DiTConfig
from cosyserve.models.flow.flow import Flow, FlowPrompt, FlowState
from cosyserve.models.vocoder import stream
from cosyserve.models.vocoder.hift import HiFT
from cosyserve.models.vocoder.stream import VocoderState

BATCH, BATCH_TOKENS = 8, 256  # chunks in one call where shapes are free, and their tokens together
TOKENS, FRAMES = 4096, 8192  # that the rows of one static shape may have together


@dataclass(frozen=True)
class Voicing:
    """A stream between two chunks."""

    flow: FlowState
    vocoder: VocoderState
    stretch: StretchState | None
    speed: float
    grid: int
    lookahead: int
    hop: int  # tokens of the second hop

    @property
    def prompt_tokens(self) -> int:
        return len(self.flow.prompt.tokens)


class Spoken(Protocol):
    """Chunks on their way."""

    @property
    def ready(self) -> bool: ...

    def get(self) -> list[tuple[Floats, Voicing]]:
        """Samples and the state behind them, per stream; waits for them."""
        ...


@dataclass(frozen=True)
class Queued:
    """Chunks in a lane. Holds on to what they are computed from."""

    before: Sequence[Voicing]
    after: Sequence[Voicing]
    samples: Reading

    @property
    def ready(self) -> bool:
        return self.samples.ready

    def get(self) -> list[tuple[Floats, Voicing]]:
        found = [samples.numpy().copy() for samples in self.samples.get()]
        if not all(np.isfinite(samples).all() for samples in found):
            raise CosyError("the model computed NaN instead of speech: its weights are broken")
        return list(zip(found, self.after, strict=True))


class Token2Wav:
    """First chunks and later ones have a lane of their own, so that neither waits for the other."""

    def __init__(
        self,
        flow: Flow,
        vocoder: HiFT,
        rows: Sequence[int] = (1,),
        hop: int = HOP_TOKENS,
        *,
        static: bool | None = None,
    ) -> None:
        """`rows`: rising numbers of streams that static shapes have room for; `static`: as of
        `Lane`."""
        self.flow, self.vocoder, self.hop = flow, vocoder, hop
        device = flow.encoder_proj.weight.device
        self._voices = Lane(device)
        soon = _Path(flow, vocoder, Lane(device, SOON, static=static), rows)
        on_gpu = device.type == "cuda"
        later = _Path(flow, vocoder, Lane(device, LATER), rows) if on_gpu else soon
        self._paths = {True: soon, False: later}

    @torch.inference_mode()
    def warm_up(self) -> int:
        """Captures every shape -> how many. Proves that they compute numbers."""
        shapes = sum(path.warm_up() for path in set(self._paths.values()))
        if shapes:
            self._prove()
        return shapes

    def reserve(self) -> None:
        """Memory for streams to come; after all captures."""
        for lane in {self._voices, *(path.lane for path in self._paths.values())}:
            lane.reserve()

    def begin(self, voice: Voice, *, with_prompt: bool, seed: int, speed: float) -> Voicing:
        """A new stream. May be called in any thread; when it returns, any lane may use it."""
        with self._voices.here():
            begun = Voicing(
                FlowState(self._prompt(voice, with_prompt)),
                stream.begin(self.vocoder, seed),
                None,
                speed,
                self.flow.grid,
                self.flow.lookahead,
                self.hop,
            )
        self._voices.wait()
        return begun

    @property
    def queue(self) -> int:
        """Calls without urgent chunks that may be on their way at once: starting another would wait
        for the first where shapes are not static."""
        return 2 if self._paths[False].static else 1

    def room(self, voicings: Sequence[Voicing], tokens: Sequence[Sequence[int]]) -> int:
        """How many of these chunks, from the first on, are best computed in one call."""
        return self._paths[False].room(voicings, tokens)

    @torch.inference_mode()
    def start(
        self,
        voicings: Sequence[Voicing],
        tokens: Sequence[Sequence[int]],
        final: Sequence[bool] | None,
        *,
        urgent: bool,
    ) -> Queued:
        """The next samples of streams, given all their tokens so far (look-ahead included); without
        `final`, whole utterances at once, with full attention."""
        return self._paths[urgent].start(voicings, tokens, final)

    def advance(
        self, voicings: Sequence[Voicing], tokens: Sequence[Sequence[int]], final: Sequence[bool]
    ) -> list[tuple[Floats, Voicing]]:
        """The next samples of streams, here and now."""
        return self.start(voicings, tokens, final, urgent=False).get()

    def whole(
        self, voicings: Sequence[Voicing], tokens: Sequence[Sequence[int]]
    ) -> list[tuple[Floats, Voicing]]:
        """Whole utterances, here and now."""
        return self.start(voicings, tokens, None, urgent=False).get()

    def _prove(self) -> None:
        """Some precisions can't hold what some weights compute."""
        random, config = np.random.default_rng(0), self.flow.config
        voice = Voice(
            "",
            random.integers(0, config.speech_tokens, 2 * self.flow.grid, dtype=np.int32),
            random.standard_normal((4 * self.flow.grid, config.mel), np.float32),
            random.standard_normal(config.speaker, np.float32),
        )
        begun = self.begin(voice, with_prompt=True, seed=0, speed=1.0)
        said = random.integers(0, config.speech_tokens, 4 * self.flow.grid).tolist()
        try:
            for urgent in (True, False):
                self.start([begun], [said], [True], urgent=urgent).get()
        except CosyError as error:
            kind = str(self.flow.encoder_proj.weight.dtype).removeprefix("torch.")
            raise CheckpointError(f"in {kind} {error}; or use --dtype float32") from error

    def _prompt(self, voice: Voice, with_prompt: bool) -> FlowPrompt:
        start = voice.flow_start if with_prompt else len(voice.speech_tokens)
        frames = start * len(voice.mel) // max(1, len(voice.speech_tokens))
        like = self.flow.encoder_proj.weight
        return FlowPrompt(
            torch.from_numpy(voice.speech_tokens[start:].astype(np.int64)).to(like.device),
            torch.from_numpy(voice.mel[frames:]).to(like),
            torch.from_numpy(voice.embedding).to(like),
        )


class _Path:
    """Flow, stretch and vocoder in one lane: on static buffers where their shapes are known."""

    def __init__(self, flow: Flow, vocoder: HiFT, lane: Lane, rows: Sequence[int]) -> None:
        self.flow, self.vocoder, self.lane = flow, vocoder, lane
        remembers = isinstance(flow.config.estimator, DiTConfig)
        self._flow = (
            FlowSteps(flow, lane, () if remembers else rows, TOKENS) if lane.static else None
        )
        self._vocoder = VocoderSteps(vocoder, lane, rows, FRAMES) if lane.static else None

    @property
    def static(self) -> bool:
        return self._flow is not None and bool(self._flow.shapes)

    def room(self, voicings: Sequence[Voicing], tokens: Sequence[Sequence[int]]) -> int:
        if self._flow and self.static:
            most = max(rows for rows, _ in self._flow.shapes)
            lengths = _lengths(voicings, tokens)[:most]
            return max(1, sum(self._flow.fits(lengths[: n + 1]) for n in range(len(lengths))))
        # Long chunks gain nothing from company, and nobody's first one can interrupt them.
        counts = itertools.accumulate(len(row) for row in tokens[:BATCH])
        return max(1, sum(count <= BATCH_TOKENS for count in counts))

    def warm_up(self) -> int:
        return sum(part.warm_up() for part in (self._flow, self._vocoder) if part)

    def start(
        self,
        voicings: Sequence[Voicing],
        tokens: Sequence[Sequence[int]],
        final: Sequence[bool] | None,
    ) -> Queued:
        with self.lane.here():
            flows = self._mels(voicings, tokens, final)
            last = [True] * len(voicings) if final is None else final
            mels, stretches = [], []
            for voicing, (mel, _), end in zip(voicings, flows, last, strict=True):
                state = voicing.stretch
                if voicing.speed != 1.0:
                    mel, state = stretch(mel, state, voicing.speed, end)
                mels.append(mel)
                stretches.append(state)
            spoken = self._samples([v.vocoder for v in voicings], mels, last)
            after = [
                replace(voicing, flow=flow, stretch=state, vocoder=vocoder)
                for voicing, (_, flow), state, (_, vocoder) in zip(
                    voicings, flows, stretches, spoken, strict=True
                )
            ]
            return Queued(voicings, after, self.lane.read(*(samples for samples, _ in spoken)))

    def _mels(
        self,
        voicings: Sequence[Voicing],
        tokens: Sequence[Sequence[int]],
        final: Sequence[bool] | None,
    ) -> list[tuple[Tensor, FlowState]]:
        states = [voicing.flow for voicing in voicings]
        prompts = [state.prompt for state in states]
        if self._flow and self._flow.fits(_lengths(voicings, tokens)):
            if final is not None:
                return self._flow.advance(states, tokens, final)
            return list(zip(self._flow.whole(prompts, tokens), states, strict=True))
        device = self.flow.encoder_proj.weight.device
        ids = [torch.tensor(row, device=device) for row in tokens]
        if final is not None:
            return self.flow.advance(states, ids, final)
        return list(zip(self.flow.whole(prompts, ids), states, strict=True))

    def _samples(
        self, states: Sequence[VocoderState], mels: Sequence[Tensor], final: Sequence[bool]
    ) -> list[tuple[Tensor, VocoderState]]:
        frames = [s.mel.shape[1] + mel.shape[1] for s, mel in zip(states, mels, strict=True)]
        if self._vocoder and self._vocoder.fits(frames):
            return self._vocoder.advance(states, mels, final)
        if self._vocoder and len(frames) > 1:
            half = len(frames) // 2
            parts = [slice(None, half), slice(half, None)]
            found = [self._samples(states[part], mels[part], final[part]) for part in parts]
            return found[0] + found[1]
        return stream.advance(self.vocoder, states, mels, final)


def _lengths(voicings: Sequence[Voicing], tokens: Sequence[Sequence[int]]) -> list[int]:
    """Tokens of each row, prompts included."""
    return [v.prompt_tokens + len(row) for v, row in zip(voicings, tokens, strict=True)]
