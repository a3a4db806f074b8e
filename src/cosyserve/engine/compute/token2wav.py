"""Speech tokens to samples for many streams at once: flow, stretch and vocoder.

The state of a stream is its `Token2WavState`, owned by its session.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np
import torch

from cosyserve.contracts import Floats, Voice
from cosyserve.engine.compute import gpu_memory
from cosyserve.engine.compute.graphs.device_queue import LATER, SOON, DeviceQueue
from cosyserve.engine.compute.graphs.token2wav_queue import Token2WavQueue
from cosyserve.engine.compute.hops import HOP_TOKENS
from cosyserve.engine.compute.limits import SEED_MASK
from cosyserve.engine.compute.queued_audio import QueuedAudio, Token2WavState
from cosyserve.errors import CheckpointError, CosyError
from cosyserve.models.flow.flow import Flow
from cosyserve.models.flow.stream import FlowPrompt, FlowState
from cosyserve.models.vocoder import stream
from cosyserve.models.vocoder.hift import HiFT

ROOMY = 40 * gpu_memory.GIB  # free memory, with which whole texts have a second queue


class Token2Wav:
    """First chunks and later ones have a queue each, so that neither waits for the other. Two
    batches of whole texts share a large GPU: one computes where the other comes to an end."""

    def __init__(
        self,
        flow: Flow,
        vocoder: HiFT,
        rows: Sequence[int] = (1,),
        hop: int = HOP_TOKENS,
        whole_batches: int = 1,
        *,
        static: bool | None = None,
    ) -> None:
        """`rows`: rising numbers of streams that static shapes have room for; `hop` and
        `whole_batches`: as of `Profile`; `static`: as of `DeviceQueue`."""
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
            self._urgent = Token2WavQueue(flow, vocoder, soon, rows, frames // 2)
            shared = self._urgent.prefixes
            self._later = Token2WavQueue(flow, vocoder, later, rows, frames, shared)
        else:
            self._urgent = self._later = Token2WavQueue(flow, vocoder, soon, rows, frames)
        whole = [self._later]
        roomy = self._later.packed and gpu_memory.free_bytes(device) >= ROOMY
        for _ in range(whole_batches - 1 if roomy else 0):
            beside = DeviceQueue(device, LATER, static=static)
            whole.append(Token2WavQueue(flow, vocoder, beside, rows, frames, streams=False))
        self.whole_batches = len(whole)
        self._whole = whole  # the one that was used least recently first
        self._queues = {self._urgent, *whole}

    @torch.inference_mode()
    def warm_up(self) -> int:
        """Captures every shape, the first time -> how many. Proves that they compute numbers."""
        if self._warm:
            return 0
        self._warm = True
        shapes = sum(queue.warm_up() for queue in self._queues)
        if shapes:
            self._prove()
        return shapes

    def reserve(self) -> None:
        """Memory for streams to come; after all captures."""
        for queue in {self._voices, *(queue.queue for queue in self._queues)}:
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
        queue = self._urgent if urgent else self._later
        if final is None and not urgent:
            queue = next((queue for queue in self._whole if queue.launched), queue)
            self._whole.remove(queue)
            self._whole.append(queue)
        return queue.start(states, tokens, final)

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
            for _ in range(self.whole_batches):  # a queue each
                self.whole([begun], [said])
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
