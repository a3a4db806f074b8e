"""Speech tokens to samples for many streams at once: flow, stretch and vocoder.

The state of a stream is its `Token2WavState`, owned by its session.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from cosyserve.contracts import Floats, Voice
from cosyserve.engine.compute.device_queue import LATER, SOON, DeviceQueue, HostCopy
from cosyserve.engine.compute.flow_graphs import FlowGraphs
from cosyserve.engine.compute.hops import HOP_TOKENS
from cosyserve.engine.compute.stretch import StretchState, stretch
from cosyserve.engine.compute.vocoder_graphs import VocoderGraphs
from cosyserve.errors import CheckpointError, CosyError
from cosyserve.models.config import DiTConfig
from cosyserve.models.flow.flow import Flow, FlowPrompt, FlowState
from cosyserve.models.flow.foreign import ForeignEstimator
from cosyserve.models.vocoder import stream
from cosyserve.models.vocoder.hift import HiFT
from cosyserve.models.vocoder.stream import VocoderState

BATCH, BATCH_TOKENS = 8, 256  # chunks in one call where shapes are free, and their tokens together
TOKENS, FRAMES = 4096, 8192  # that the rows of one static shape may have together


@dataclass(frozen=True)
class Token2WavState:
    """The state of a stream between two chunks."""

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


class PendingAudio(Protocol):
    """Chunks that are being computed."""

    @property
    def ready(self) -> bool: ...

    def get(self) -> list[tuple[Floats, Token2WavState]]:
        """Samples and the state behind them, per stream; waits for them."""
        ...


@dataclass(frozen=True)
class QueuedAudio:
    """Chunks in a queue, with what they are computed from."""

    before: Sequence[Token2WavState]
    after: Sequence[Token2WavState]
    samples: HostCopy

    @property
    def ready(self) -> bool:
        return self.samples.ready

    def get(self) -> list[tuple[Floats, Token2WavState]]:
        samples = [chunk.numpy().copy() for chunk in self.samples.get()]
        if not all(np.isfinite(chunk).all() for chunk in samples):
            raise CosyError("the model computed NaN instead of speech: its weights are broken")
        return list(zip(samples, self.after, strict=True))


class Token2Wav:
    """First chunks and later ones have a queue each, so that neither waits for the other."""

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
        `DeviceQueue`."""
        self.flow, self.vocoder, self.hop = flow, vocoder, hop
        device = flow.weight.device
        self._voices = DeviceQueue(device)
        soon = _Pipeline(flow, vocoder, DeviceQueue(device, SOON, static=static), rows)
        on_gpu = device.type == "cuda"
        later = _Pipeline(flow, vocoder, DeviceQueue(device, LATER), rows) if on_gpu else soon
        self._urgent = soon
        self._later = later

    @torch.inference_mode()
    def warm_up(self) -> int:
        """Captures every shape -> how many. Proves that they compute numbers."""
        shapes = sum(pipeline.warm_up() for pipeline in {self._urgent, self._later})
        if shapes:
            self._prove()
        return shapes

    def reserve(self) -> None:
        """Memory for streams to come; after all captures."""
        for queue in {self._voices, *(pipeline.queue for pipeline in (self._urgent, self._later))}:
            queue.reserve()

    def begin(self, voice: Voice, *, with_prompt: bool, seed: int, speed: float) -> Token2WavState:
        """The state of a new stream. May be called in any thread; any queue may use it then."""
        with self._voices.use():
            begun = Token2WavState(
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
    def max_in_flight(self) -> int:
        """Calls without urgent chunks that may be computed at once: starting another would wait
        for the first where shapes are not static."""
        return 2 if self._later.static else 1

    def max_batch(self, states: Sequence[Token2WavState], tokens: Sequence[Sequence[int]]) -> int:
        """How many of these chunks, from the first on, are best computed in one call."""
        return self._later.max_batch(states, tokens)

    @torch.inference_mode()
    def start(
        self,
        states: Sequence[Token2WavState],
        tokens: Sequence[Sequence[int]],
        final: Sequence[bool] | None,
        *,
        urgent: bool,
    ) -> QueuedAudio:
        """The next samples of streams, given all their tokens so far (look-ahead included); without
        `final`, whole utterances at once, with full attention."""
        return (self._urgent if urgent else self._later).start(states, tokens, final)

    def advance(
        self,
        states: Sequence[Token2WavState],
        tokens: Sequence[Sequence[int]],
        final: Sequence[bool],
    ) -> list[tuple[Floats, Token2WavState]]:
        """The next samples of streams, here and now."""
        return self.start(states, tokens, final, urgent=False).get()

    def whole(
        self, states: Sequence[Token2WavState], tokens: Sequence[Sequence[int]]
    ) -> list[tuple[Floats, Token2WavState]]:
        """Whole utterances, here and now."""
        return self.start(states, tokens, None, urgent=False).get()

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
            kind = str(self.flow.weight.dtype).removeprefix("torch.")
            raise CheckpointError(f"in {kind} {error}; or use --dtype float32") from error

    def _prompt(self, voice: Voice, with_prompt: bool) -> FlowPrompt:
        start = voice.flow_start if with_prompt else len(voice.speech_tokens)
        frames = start * len(voice.mel) // max(1, len(voice.speech_tokens))
        like = self.flow.weight
        return FlowPrompt(
            torch.from_numpy(voice.speech_tokens[start:].astype(np.int64)).to(like.device),
            torch.from_numpy(voice.mel[frames:]).to(like),
            torch.from_numpy(voice.embedding).to(like),
        )


class _Pipeline:
    """Flow, stretch and vocoder in one queue: on static buffers where their shapes are known."""

    def __init__(self, flow: Flow, vocoder: HiFT, queue: DeviceQueue, rows: Sequence[int]) -> None:
        self.flow, self.vocoder, self.queue = flow, vocoder, queue
        remembers = isinstance(flow.config.estimator, DiTConfig)
        captures = queue.static and not isinstance(flow.estimator, ForeignEstimator)
        shapes = () if remembers else rows
        self._flow = FlowGraphs(flow, queue, shapes, TOKENS) if captures else None
        self._vocoder = VocoderGraphs(vocoder, queue, rows, FRAMES) if queue.static else None

    @property
    def static(self) -> bool:
        return self._flow is not None and bool(self._flow.shapes)

    def max_batch(self, states: Sequence[Token2WavState], tokens: Sequence[Sequence[int]]) -> int:
        if self._flow and self.static:
            max_rows = max(rows for rows, _ in self._flow.shapes)
            lengths = _lengths(states, tokens)[:max_rows]
            return max(1, sum(self._flow.fits(lengths[: n + 1]) for n in range(len(lengths))))
        # Long chunks gain nothing from company, and nobody's first one can interrupt them.
        counts = itertools.accumulate(len(row) for row in tokens[:BATCH])
        return max(1, sum(count <= BATCH_TOKENS for count in counts))

    def warm_up(self) -> int:
        return sum(part.warm_up() for part in (self._flow, self._vocoder) if part)

    def start(
        self,
        states: Sequence[Token2WavState],
        tokens: Sequence[Sequence[int]],
        final: Sequence[bool] | None,
    ) -> QueuedAudio:
        with self.queue.use():
            flows = self._mels(states, tokens, final)
            last = [True] * len(states) if final is None else final
            mels, stretches = [], []
            for state, (mel, _), end in zip(states, flows, last, strict=True):
                stretched = state.stretch
                if state.speed != 1.0:
                    mel, stretched = stretch(mel, stretched, state.speed, end)
                mels.append(mel)
                stretches.append(stretched)
            vocoded = self._samples([state.vocoder for state in states], mels, last)
            after = [
                replace(state, flow=flow, stretch=stretched, vocoder=vocoder)
                for state, (_, flow), stretched, (_, vocoder) in zip(
                    states, flows, stretches, vocoded, strict=True
                )
            ]
            samples = self.queue.read(*(samples for samples, _ in vocoded))
            return QueuedAudio(states, after, samples)

    def _mels(
        self,
        states: Sequence[Token2WavState],
        tokens: Sequence[Sequence[int]],
        final: Sequence[bool] | None,
    ) -> list[tuple[Tensor, FlowState]]:
        flows = [state.flow for state in states]
        prompts = [flow.prompt for flow in flows]
        if self._flow and self._flow.fits(_lengths(states, tokens)):
            if final is not None:
                return self._flow.advance(flows, tokens, final)
            return list(zip(self._flow.whole(prompts, tokens), flows, strict=True))
        device = self.flow.weight.device
        ids = [torch.tensor(row, device=device) for row in tokens]
        if final is not None:
            return self.flow.advance(flows, ids, final)
        return list(zip(self.flow.whole(prompts, ids), flows, strict=True))

    def _samples(
        self, states: Sequence[VocoderState], mels: Sequence[Tensor], final: Sequence[bool]
    ) -> list[tuple[Tensor, VocoderState]]:
        frames = [s.mel.shape[1] + mel.shape[1] for s, mel in zip(states, mels, strict=True)]
        if self._vocoder and self._vocoder.fits(frames):
            return self._vocoder.advance(states, mels, final)
        if self._vocoder and len(frames) > 1:
            half = len(frames) // 2
            parts = [slice(None, half), slice(half, None)]
            first, second = (self._samples(states[p], mels[p], final[p]) for p in parts)
            return first + second
        return stream.advance(self.vocoder, states, mels, final)


def _lengths(states: Sequence[Token2WavState], tokens: Sequence[Sequence[int]]) -> list[int]:
    """Tokens of each row, prompts included."""
    return [state.prompt_tokens + len(row) for state, row in zip(states, tokens, strict=True)]
