"""What all rooms speak in: units, voices, requests, audio chunks.

It needs numpy at most: no torch, no file, no setting.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property
from typing import Literal, Protocol, TypedDict, cast

import numpy as np
import numpy.typing as npt

from cosyserve.errors import InputError, VoiceError

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]

SAMPLE_RATE = 24_000
TOKENS_PER_SECOND = 25
FRAMES_PER_TOKEN = 2
SAMPLES_PER_FRAME = 480
SAMPLES_PER_TOKEN = FRAMES_PER_TOKEN * SAMPLES_PER_FRAME  # 960
MEL_BINS = 80
MAX_PROMPT_SECONDS = 30.0
# Of a voice, far beyond what is learned: a mel holds logarithms, from -11.5 to about 5.
MAX_MEL, MAX_EMBEDDING = 100.0, 1e4
MIN_SPEED, MAX_SPEED = 0.25, 4.0
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.01, 2.0
MAX_WINDOW = 64  # drawn ids that are remembered for `Sampling`
LANGUAGE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*")


class Mode(StrEnum):
    """How text and voice become model inputs."""

    ZERO_SHOT = "zero_shot"  # prompt text and speech lead the LM; the flow continues the prompt
    CROSS_LINGUAL = "cross_lingual"  # the LM sees only the target text
    INSTRUCT = "instruct"  # the LM sees an instruction, then the target text
    PRESET = "preset"  # speaker embedding only
    CONVERT = "convert"  # no LM: the speech tokens of a source recording


FinishReason = Literal["stop", "length", "early", "cancelled", "error"]  # early: before the text


@dataclass(frozen=True)
class Sampling:
    """Nucleus sampling with the repetition-aware second draw."""

    top_p: float = 0.8
    top_k: int = 25
    window: int = 10
    max_repeats: float = 0.1  # of the window; at or above, the id is redrawn from all others
    temperature: float = 1.0  # of both draws: logits are divided by it

    def __post_init__(self) -> None:
        if not 0.0 < self.top_p <= 1.0:
            raise InputError(f"top_p must be in (0, 1], got {self.top_p}")
        if self.top_k < 1:
            raise InputError("top_k must be at least 1")
        if not 1 <= self.window <= MAX_WINDOW:
            raise InputError(f"window must be 1..{MAX_WINDOW}, got {self.window}")
        if not MIN_TEMPERATURE <= self.temperature <= MAX_TEMPERATURE:
            allowed = f"{MIN_TEMPERATURE}..{MAX_TEMPERATURE}"
            raise InputError(f"temperature must be {allowed}, got {self.temperature}")


@dataclass(frozen=True, eq=False)
class Voice:
    """A speaker: what the LM and the flow are prompted with.

    speech_tokens [n], mel [2n, 80] and embedding [E] belong together; a preset has n = 0.
    `flow_start` is where the flow's prompt begins: leading tokens (and their frames) before it
    are left out of the flow's prompt, never out of the LM's.
    """

    prompt_text: str
    speech_tokens: Ints
    mel: Floats
    embedding: Floats
    flow_start: int = 0
    name: str = ""
    language: str = ""
    family: str = "cosyvoice2"
    fingerprint: str = ""
    consent: str = ""
    created: str = ""
    source: Floats | None = None
    source_rate: int = 0

    def __post_init__(self) -> None:
        if self.speech_tokens.ndim != 1:
            raise VoiceError(f"speech_tokens must be [n], got {list(self.speech_tokens.shape)}")
        if self.embedding.ndim != 1 or not self.embedding.size:
            raise VoiceError(f"embedding must be [E], got {list(self.embedding.shape)}")
        frames = FRAMES_PER_TOKEN * len(self.speech_tokens)
        if self.mel.ndim != 2 or len(self.mel) != frames:
            raise VoiceError(
                f"mel must have {frames} frames ({FRAMES_PER_TOKEN} per speech token), "
                f"got shape {list(self.mel.shape)}"
            )
        if not (np.isfinite(self.mel).all() and np.isfinite(self.embedding).all()):
            raise VoiceError("mel and embedding must be finite numbers")
        if np.abs(self.mel).max(initial=0) > MAX_MEL:
            raise VoiceError(f"mel must be within ±{MAX_MEL:g}: these are no spectra")
        if np.abs(self.embedding).max() > MAX_EMBEDDING:
            raise VoiceError(f"embedding must be within ±{MAX_EMBEDDING:g}: this is no speaker's")
        if len(self.speech_tokens) and int(self.speech_tokens.min()) < 0:
            raise VoiceError("speech_tokens must not be negative")
        if not 0 <= self.flow_start <= len(self.speech_tokens):
            raise VoiceError(f"flow_start {self.flow_start} is outside the prompt")

    @property
    def mode(self) -> Mode:
        """How the voice is used unless a request says otherwise: as far as it goes."""
        if not self.speech_tokens.size:
            return Mode.PRESET
        return Mode.ZERO_SHOT if self.prompt_text else Mode.CROSS_LINGUAL

    @cached_property
    def content_hash(self) -> str:
        """Identity of the voice: a hash of what the model hears, never of a name."""
        digest = hashlib.sha256()
        for part in (
            self.prompt_text.encode(),
            np.ascontiguousarray(self.speech_tokens, np.int32).tobytes(),
            np.ascontiguousarray(self.mel, np.float32).tobytes(),
            np.ascontiguousarray(self.embedding, np.float32).tobytes(),
            str(self.flow_start).encode(),
        ):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
        return digest.hexdigest()


@dataclass(frozen=True)
class VoiceFormat:
    """What a model wants of a voice; "" or 0 is unknown."""

    family: str
    fingerprint: str = ""  # of the weights that make voices
    embedding: int = 0  # numbers
    mel: int = 0  # bins
    speech_tokens: int = 0  # different ones


@dataclass(frozen=True, eq=False)
class Recording:
    """A few seconds of somebody, from which an engine learns a voice."""

    samples: Floats
    rate: int
    text: str = ""  # what is said in it
    name: str = ""
    language: str = ""
    consent: str = ""

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate


class Pushed:
    """Stands for a text that is pushed to a session piece by piece."""


Text = str | Iterator[str] | AsyncIterator[str] | Pushed


class SpeechOptions(TypedDict, total=False):
    """How a text is spoken: all of a `SpeechRequest` but its text and its voice."""

    mode: Mode
    instruction: str
    speed: float
    seed: int
    stream: bool
    normalize: bool
    sampling: Sampling | None
    source: Floats | None
    language: str
    lexicon: dict[str, str]
    final_pause: bool


@dataclass(frozen=True)
class SpeechRequest:
    """One utterance to speak. `text` may also arrive piece by piece: as an iterator for a caller
    who waits (`speak`), as an asynchronous one for an `Engine`, pushed behind a socket."""

    text: Text
    voice: Voice
    mode: Mode = Mode.ZERO_SHOT
    instruction: str = ""
    speed: float = 1.0
    seed: int = 0
    stream: bool = False
    normalize: bool = True
    sampling: Sampling | None = None  # None: as the model is best sampled
    source: Floats | None = None  # mode CONVERT: the recording to convert, 16 kHz mono
    language: str = ""  # of the text, for reading its numbers: en, zh, …; "" = found out
    lexicon: dict[str, str] = field(default_factory=dict)  # words, and how each is said
    # The model's own, behind the last sound; False: more follows at once. (Where pieces of a text
    # are spoken sentence by sentence, each sentence has it.)
    final_pause: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.speed, float | int) or not MIN_SPEED <= self.speed <= MAX_SPEED:
            raise InputError(f"speed must be {MIN_SPEED}..{MAX_SPEED}, got {self.speed!r}")
        if self.mode is Mode.INSTRUCT and not self.instruction.strip():
            raise InputError("mode 'instruct' needs an instruction, e.g. 'Speak slowly.'")
        if self.mode is Mode.CONVERT and self.source is None:
            raise InputError("mode 'convert' needs a source recording")
        if self.language and not LANGUAGE.fullmatch(self.language):
            raise InputError(
                f"language must be a code like 'en' or 'zh', got {self.language!r:.40}"
            )

    @property
    def options(self) -> SpeechOptions:
        options = {name: getattr(self, name) for name in SpeechOptions.__annotations__}
        return cast(SpeechOptions, options)


@dataclass(frozen=True)
class Timeline:
    """When a session passed its stages, in seconds after it entered the queue.

    The LM draws from `admitted` to `drawn`; token2wav has work from `first_tokens` to `sent`.
    """

    planned: float  # the text was split and tokenized
    admitted: float  # it got a slot
    first_tokens: float  # there were enough for the first chunk
    drawn: float | None  # the LM had come to an end; None: not yet
    sent: float  # the chunk that carries this


@dataclass(frozen=True, eq=False)
class AudioChunk:
    """A piece of speech, in order. The last one of an utterance carries a finish reason."""

    samples: Floats
    index: int
    start: float  # seconds of audio before this chunk
    tokens: int  # speech tokens that this chunk turned into audio
    finish: FinishReason | None = None
    text_tokens: int = 0  # of the text, those that were not told before
    timeline: Timeline | None = None  # said with the first and the last chunk, if it is known
    retries: int = 0  # utterances that were drawn once more, those that were not told before

    @property
    def final(self) -> bool:
        return self.finish is not None


@dataclass(frozen=True)
class ModelInfo:
    """What an engine runs."""

    name: str
    voice_format: VoiceFormat
    speech: bool  # False: random weights, not speech
    voices: dict[str, Voice]  # shipped with the model; `default` is among them if it has any
    takes_pieces: bool = True  # of text while it speaks; else it is asked for sentence by sentence
    sampling: Sampling = Sampling()  # as it is best sampled

    @property
    def family(self) -> str:
        return self.voice_format.family

    @property
    def fingerprint(self) -> str:
        return self.voice_format.fingerprint


@dataclass(frozen=True)
class EngineStats:
    """Counts of this moment, and totals since the start. Those of several workers add up."""

    ready: bool
    waiting: int
    running: int
    slots: int = 0  # for running ones; 0: not known
    sessions: int = 0  # opened since the start
    tokens: int = 0
    lm_seconds: float = 0.0
    token2wav_seconds: float = 0.0
    restarts: int = 0  # of workers that died
    gpu_memory: dict[str, int] = field(default_factory=dict)  # bytes held, by device

    def __add__(self, other: EngineStats) -> EngineStats:
        memory = Counter(self.gpu_memory) + Counter(other.gpu_memory)
        names = {field.name for field in fields(self)} - {"ready", "gpu_memory"}
        sums = {name: getattr(self, name) + getattr(other, name) for name in names}
        return EngineStats(self.ready or other.ready, **sums, gpu_memory=dict(memory))

    @property
    def totals(self) -> EngineStats:
        """What stays of a worker that is gone."""
        return replace(self, ready=False, waiting=0, running=0, slots=0, gpu_memory={})


class Engine(Protocol):
    """Speaks for many at once. All that a gateway knows of what computes."""

    @property
    def model(self) -> ModelInfo: ...

    def open(self, request: SpeechRequest) -> AsyncGenerator[AudioChunk, None]:
        """Chunks in order. Closing the iterator cancels the session."""
        ...

    async def embed(self, recording: Recording) -> Voice:
        """Learns a voice."""
        ...

    def stats(self) -> EngineStats: ...

    async def close(self) -> None: ...
