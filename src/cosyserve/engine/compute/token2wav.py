"""Speech tokens to samples for many streams at once: flow, stretch and vocoder.

The state of a stream is its `Token2WavState`, owned by its session.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from cosyserve.contracts import Floats, Voice
from cosyserve.engine.compute import gpu_memory
from cosyserve.engine.compute.graphs.device_queue import LATER, SOON, DeviceQueue
from cosyserve.engine.compute.graphs.packed_flow import PackedFlow
from cosyserve.engine.compute.graphs.padded_flow import FlowGraphs
from cosyserve.engine.compute.graphs.prefix_cache import PrefixCache
from cosyserve.engine.compute.graphs.vocoder import VocoderGraphs
from cosyserve.engine.compute.hops import HOP_TOKENS
from cosyserve.engine.compute.incremental_flow import incremental_flow
from cosyserve.engine.compute.limits import SEED_MASK
from cosyserve.engine.compute.queued_audio import Launches, QueuedAudio, Token2WavState
from cosyserve.engine.compute.stretch import stretch
from cosyserve.errors import CheckpointError, CosyError
from cosyserve.models.flow.flow import Flow
from cosyserve.models.flow.foreign import ForeignEstimator
from cosyserve.models.flow.stream import FlowPrompt, FlowState
from cosyserve.models.vocoder import stream
from cosyserve.models.vocoder.hift import HiFT
from cosyserve.models.vocoder.host import host_hift
from cosyserve.models.vocoder.stream import VocoderState

BATCH, BATCH_TOKENS = 8, 256  # chunks in one call where shapes are free, and their tokens together


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
        with self._voices.use():
            self._begun = stream.begin(vocoder, 0)
        self._voices.wait()
        # Of each voice, for as long as somebody has it: with its recording, or without.
        self._prompts: WeakKeyDictionary[Voice, dict[bool, FlowPrompt]] = WeakKeyDictionary()
        self._warm = False
        frames, soon = gpu_memory.max_frames(device), DeviceQueue(device, SOON, static=static)
        if device.type == "cuda":
            later = DeviceQueue(device, LATER, static=static)
            # First chunks are short.
            self._urgent = _Pipeline(flow, vocoder, soon, rows, frames // 2)
            shared = self._urgent.prefixes
            self._later = _Pipeline(flow, vocoder, later, rows, frames, shared)
        else:
            self._urgent = self._later = _Pipeline(flow, vocoder, soon, rows, frames)

    @torch.inference_mode()
    def warm_up(self) -> int:
        """Captures every shape, the first time -> how many. Proves that they compute numbers."""
        if self._warm:
            return 0
        self._warm = True
        shapes = sum(pipeline.warm_up() for pipeline in {self._urgent, self._later})
        if shapes:
            self._prove()
        return shapes

    def reserve(self) -> None:
        """Memory for streams to come; after all captures."""
        for queue in {self._voices, *(pipeline.queue for pipeline in (self._urgent, self._later))}:
            queue.reserve()

    @torch.inference_mode()
    def cache_prompts(self, voices: Iterable[Voice]) -> None:
        """Computes what the first listeners of these voices would wait for, where it is kept."""
        prefixes = self._urgent.prefixes
        for voice in itertools.islice(dict.fromkeys(voices), prefixes.slots if prefixes else 0):
            begun = self.begin(voice, with_prompt=True, seed=0, speed=1.0)
            with suppress(CosyError):  # whoever asks for that voice is told
                self.start([begun], [[0] * self.flow.grid], [True], urgent=True).get()

    def begin(self, voice: Voice, *, with_prompt: bool, seed: int, speed: float) -> Token2WavState:
        """The state of a new stream. May be called in any thread; any queue may use it then."""
        fixed = self.flow.config.remembers
        return Token2WavState(
            FlowState(self._prompt(voice, with_prompt)),
            replace(self._begun, seed=seed & SEED_MASK),
            None,
            speed,
            self.flow.grid,
            self.flow.lookahead,
            # In the background a chunk takes all tokens there are, however few it needs.
            HOP_TOKENS if self.in_background and not fixed else self.hop,
            fixed,
        )

    @property
    def in_background(self) -> bool:
        """Whether the LM goes on while chunks are computed."""
        return self._later.static

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
        chunk = config.encoder.chunk
        voice = Voice(
            "",
            random.integers(0, config.speech_tokens, 2 * chunk, dtype=np.int32),
            random.standard_normal((4 * chunk, config.mel), np.float32),
            random.standard_normal(config.speaker, np.float32),
        )
        begun = self.begin(voice, with_prompt=True, seed=0, speed=1.0)
        said = random.integers(0, config.speech_tokens, 4 * chunk).tolist()
        try:
            for urgent in (True, False):
                self.start([begun], [said], [True], urgent=urgent).get()
        except CosyError as error:
            kind = str(self.flow.weight.dtype).removeprefix("torch.")
            raise CheckpointError(f"in {kind} {error}; or use --dtype float32") from error

    def _prompt(self, voice: Voice, with_prompt: bool) -> FlowPrompt:
        known = self._prompts.setdefault(voice, {})
        if with_prompt not in known:
            with self._voices.use():
                prompt = self._uploaded(voice, with_prompt)
            self._voices.wait()  # any queue may use it then
            known[with_prompt] = prompt
        return known[with_prompt]

    def _uploaded(self, voice: Voice, with_prompt: bool) -> FlowPrompt:
        start = voice.flow_start if with_prompt else len(voice.speech_tokens)
        frames = start * len(voice.mel) // max(1, len(voice.speech_tokens))
        like = self.flow.weight
        return FlowPrompt(
            torch.from_numpy(voice.speech_tokens[start:].astype(np.int64)).to(like.device),
            torch.from_numpy(voice.mel[frames:]).to(like),
            torch.from_numpy(voice.embedding).to(like),
            voice.content_hash if with_prompt else "",
        )


class _Pipeline:
    """Flow, stretch and vocoder in one queue: on static buffers where their shapes are known."""

    def __init__(
        self,
        flow: Flow,
        vocoder: HiFT,
        queue: DeviceQueue,
        rows: Sequence[int],
        frames: int,
        prefixes: PrefixCache | None = None,
    ) -> None:
        """`frames` of the vocoder's largest shape."""
        self.flow, self.vocoder, self.queue = flow, vocoder, queue
        self._flow: PackedFlow | FlowGraphs | None = None
        self._vocoder: VocoderGraphs | None = None
        self._incremental, self._host = incremental_flow(flow), host_hift(vocoder)
        if queue.static:
            self._vocoder = VocoderGraphs(vocoder, queue, rows, frames)
        if queue.static and not isinstance(flow.estimator, ForeignEstimator):
            packed = PackedFlow.of(flow, queue, rows[-1], prefixes)
            self._flow = packed or FlowGraphs(
                flow, queue, rows, gpu_memory.max_tokens(queue.device)
            )

    @property
    def prefixes(self) -> PrefixCache | None:
        """What it has computed of prompts, for others to use, too."""
        return self._flow.prefixes if isinstance(self._flow, PackedFlow) else None

    @property
    def static(self) -> bool:
        return self._flow is not None

    def max_batch(self, states: Sequence[Token2WavState], tokens: Sequence[Sequence[int]]) -> int:
        if self._flow:
            return max(1, self._flow.max_batch(_lengths(states, tokens)))
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
        launches = self._launches(states, tokens, final)
        return QueuedAudio(self.queue, states, launches, self.prefixes)

    def _launches(
        self,
        states: Sequence[Token2WavState],
        tokens: Sequence[Sequence[int]],
        final: Sequence[bool] | None,
    ) -> Launches:
        flows = yield from self._mels(states, tokens, final)
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
        return after, self.queue.read(*(samples for samples, _ in vocoded))

    def _mels(
        self,
        states: Sequence[Token2WavState],
        tokens: Sequence[Sequence[int]],
        final: Sequence[bool] | None,
    ) -> Generator[None, None, list[tuple[Tensor, FlowState]]]:
        flows = [state.flow for state in states]
        prompts = [flow.prompt for flow in flows]
        if self._flow and self._flow.max_batch(_lengths(states, tokens)) == len(states):
            if final is not None:
                return (yield from self._flow.advance(flows, tokens, final))
            whole = yield from self._flow.whole(prompts, tokens)
            return list(zip(whole, flows, strict=True))
        device = self.flow.weight.device
        ids = [torch.tensor(row, device=device) for row in tokens]
        if final is not None:
            return (self._incremental or self.flow).advance(flows, ids, final)
        return list(zip(self.flow.whole(prompts, ids), flows, strict=True))

    def _samples(
        self, states: Sequence[VocoderState], mels: Sequence[Tensor], final: Sequence[bool]
    ) -> list[tuple[Tensor, VocoderState]]:
        """Windows of like lengths are computed together."""
        frames = [s.mel.shape[1] + mel.shape[1] for s, mel in zip(states, mels, strict=True)]
        if self._vocoder is None:
            return stream.advance(self.vocoder, states, mels, final, self._host)
        vocoded: dict[int, tuple[Tensor, VocoderState]] = {}
        for group in self._vocoder.groups(frames):
            part = [states[n] for n in group], [mels[n] for n in group], [final[n] for n in group]
            fits = self._vocoder.fits([frames[n] for n in group])
            done = self._vocoder.advance(*part) if fits else stream.advance(self.vocoder, *part)
            vocoded.update(zip(group, done, strict=True))
        return [vocoded[n] for n in range(len(states))]


def _lengths(states: Sequence[Token2WavState], tokens: Sequence[Sequence[int]]) -> list[int]:
    """Tokens of each row, prompts included."""
    return [state.prompt_tokens + len(row) for state, row in zip(states, tokens, strict=True)]
