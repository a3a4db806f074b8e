"""Every size of a model, as frozen dataclasses; the defaults are CosyVoice2-0.5B.

Parts in the order in which speech passes them, then what learns a voice, then the whole model. A
config that exists can be built: sizes that contradict each other are a ValueError.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from cosyserve.audio.features import KALDI_BINS, WHISPER_BINS
from cosyserve.contracts import (
    MEL_BINS,
    SAMPLE_RATE,
    SAMPLES_PER_FRAME,
    Sampling,
    VoiceFormat,
)


@dataclass(frozen=True)
class LMConfig:
    """Qwen2 over one table of ids: text, then speech classes, then [sos, task]."""

    hidden: int = 896
    intermediate: int = 4864
    layers: int = 24
    heads: int = 14
    kv_heads: int = 2
    text_vocab: int = 151_936
    speech_tokens: int = 6561
    norm_eps: float = 1e-6
    rope_theta: float = 1e6
    speech_per_text: tuple[float, ...] = (2.0, 20.0)  # tokens, at least and at most
    takes_pieces: bool = True  # whether it has learnt to speak while its text still arrives

    def __post_init__(self) -> None:
        _require(len(self.speech_per_text) == 2, "speech_per_text needs two numbers")
        _require(self.hidden % (2 * self.heads) == 0, "hidden is no even number per head")
        _require(self.heads % self.kv_heads == 0, "heads don't divide into key-value heads")

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    @property
    def classes(self) -> int:
        """Speech tokens, then three ids that end or interrupt the speech."""
        return self.speech_tokens + 3

    @property
    def eos(self) -> int:
        return self.speech_tokens

    @property
    def fill(self) -> int:
        """Says 'give me more text' when text arrives piece by piece."""
        return self.speech_tokens + 2

    @property
    def sos(self) -> int:
        return self.text_vocab + self.classes

    @property
    def task(self) -> int:
        return self.sos + 1

    @property
    def vocab(self) -> int:
        return self.sos + 2


@dataclass(frozen=True)
class EncoderConfig:
    """Upsampling conformer: speech tokens in, two frames per token out."""

    size: int = 512
    heads: int = 8
    feed_forward: int = 2048
    blocks: int = 6
    up_blocks: int = 4
    lookahead: int = 3  # tokens to the right that a frame may see
    chunk: int = 25  # tokens per chunk of the streaming mask

    def __post_init__(self) -> None:
        _require(self.size % (2 * self.heads) == 0, "the encoder's size is no even number per head")


@dataclass(frozen=True)
class UNetConfig:
    """The CosyVoice2 flow estimator."""

    kind: Literal["unet"] = "unet"
    channels: int = 256
    heads: int = 8
    head_dim: int = 64
    blocks: int = 4  # transformer blocks per ResNet block
    mid: int = 12


@dataclass(frozen=True)
class DiTConfig:
    """The Step-Audio2 flow estimator."""

    kind: Literal["dit"] = "dit"
    hidden: int = 512
    depth: int = 16
    heads: int = 8
    head_dim: int = 64
    mlp_ratio: float = 4.0
    frequency_size: int = 256
    history: int = 100  # frames after the prompt that a streamed chunk attends to

    def __post_init__(self) -> None:
        _require(self.frequency_size % 2 == 0, "frequency_size is odd")
        _require(self.mlp_ratio * self.hidden >= 1, "mlp_ratio leaves nothing of hidden")


@dataclass(frozen=True)
class FlowConfig:
    """Speech tokens in, mel frames out: the encoder, then an estimator for the Euler steps."""

    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    estimator: UNetConfig | DiTConfig = field(default_factory=UNetConfig)
    speech_tokens: int = 6561
    mel: int = 80
    speaker: int = 192
    steps: int = 10
    guidance: float = 0.7
    max_frames: int = 15_000  # of the fixed noise: prompt and speech together

    @property
    def grid(self) -> int:
        """A streamed chunk is exact when prompt and speech end on a multiple of this."""
        return 1 if isinstance(self.estimator, DiTConfig) else self.encoder.chunk


@dataclass(frozen=True)
class VocoderConfig:
    """The HiFT vocoder: mel frames in, samples out."""

    mel: int = 80
    base: int = 512
    f0_channels: int = 512
    harmonics: int = 8
    sample_rate: int = 24_000
    sine_amplitude: float = 0.1
    noise_sigma: float = 0.003
    voiced_above: float = 10.0  # Hz
    upsample_rates: tuple[int, ...] = (8, 5, 3)
    upsample_kernels: tuple[int, ...] = (16, 11, 7)
    n_fft: int = 16
    hop: int = 4
    kernels: tuple[int, ...] = (3, 7, 11)
    dilations: tuple[tuple[int, ...], ...] = ((1, 3, 5), (1, 3, 5), (1, 3, 5))
    source_kernels: tuple[int, ...] = (7, 7, 11)
    source_dilations: tuple[tuple[int, ...], ...] = ((1, 3, 5), (1, 3, 5), (1, 3, 5))
    slope: float = 0.1
    limit: float = 0.99

    def __post_init__(self) -> None:
        stages = len(self.upsample_rates)
        _require(
            stages
            == len(self.upsample_kernels)
            == len(self.source_kernels)
            == len(self.source_dilations),
            "the vocoder's lists of stages differ in length",
        )
        _require(len(self.kernels) == len(self.dilations), "kernels and dilations differ in length")
        _require(self.base >> stages > 0, "base can't be halved in every stage")
        _require(
            all(k % 2 for k in self.kernels + self.source_kernels), "a block's kernel is not odd"
        )
        _require(
            all(
                k >= r and (k - r) % 2 == 0
                for k, r in zip(self.upsample_kernels, self.upsample_rates, strict=True)
            ),
            "an upsampling kernel does not stand evenly over its rate",
        )
        _require(self.n_fft % 2 == 0 and self.hop <= self.n_fft, "n_fft and hop don't fit")


LEVELS = 3  # each code dimension of the S3 tokenizer is one of -1, 0, 1


@dataclass(frozen=True)
class S3Config:
    """The S3 speech tokenizer: log-mel frames in, 25 speech tokens per second out."""

    mels: int = 128
    state: int = 1280
    heads: int = 20
    layers: int = 6
    fsmn_kernel: int = 31
    code_dims: int = 8

    @property
    def head_dim(self) -> int:
        return self.state // self.heads


@dataclass(frozen=True)
class CamPlusConfig:
    """The CAM++ speaker encoder: filterbank frames in, one embedding out."""

    feat: int = 80
    embedding: int = 192
    head_channels: int = 32
    init_channels: int = 128
    growth: int = 32
    bn_size: int = 4
    block_layers: tuple[int, ...] = (12, 24, 16)
    dilations: tuple[int, ...] = (1, 2, 2)
    kernel: int = 3
    segment: int = 100

    @property
    def bottleneck(self) -> int:
        return self.bn_size * self.growth


@dataclass(frozen=True)
class ModelConfig:
    """A model folder: the parts it has (None = not in this folder)."""

    name: str = "cosyvoice2"
    family: str = "cosyvoice2"
    lm: LMConfig | None = None
    flow: FlowConfig | None = None
    vocoder: VocoderConfig | None = None
    speech_tokenizer: S3Config | None = None
    speaker_encoder: CamPlusConfig | None = None
    fingerprint: str = ""  # of the weights that make voices (tokenizer and speaker encoder)
    speech: bool = True  # False: random weights for tests, the output is no speech
    sampling: Sampling = field(default_factory=Sampling)

    @property
    def takes_pieces(self) -> bool:
        """Whether text may arrive while the model speaks."""
        return self.lm is None or self.lm.takes_pieces

    @property
    def voice_format(self) -> VoiceFormat:
        if self.flow is None:
            return VoiceFormat(self.family, self.fingerprint)
        return VoiceFormat(
            family=self.family,
            fingerprint=self.fingerprint,
            embedding=self.flow.speaker,
            mel=self.flow.mel,
            speech_tokens=self.flow.speech_tokens,
        )

    def __post_init__(self) -> None:
        """Parts agree on tokens, frames and samples, with each other and with `contracts`."""
        lm, flow, vocoder = self.lm, self.flow, self.vocoder
        tokens, speaker = self.speech_tokenizer, self.speaker_encoder
        if lm and flow:
            _agree("speech tokens", "LM", lm.speech_tokens, "flow", flow.speech_tokens)
        if flow:
            _agree("mel bins", "flow", flow.mel, "prompt", MEL_BINS)
        if vocoder:
            _agree("mel bins", "vocoder", vocoder.mel, "flow", MEL_BINS)
            _agree("samples per second", "vocoder", vocoder.sample_rate, "server", SAMPLE_RATE)
            frame = math.prod(vocoder.upsample_rates) * vocoder.hop
            _agree("samples per frame", "vocoder", frame, "server", SAMPLES_PER_FRAME)
        if tokens:
            _agree("mel bins", "speech tokenizer", tokens.mels, "recording", WHISPER_BINS)
            _require(tokens.state % (2 * tokens.heads) == 0, "state is no even number per head")
            _require(tokens.fsmn_kernel % 2 == 1, "fsmn_kernel is not odd")
        if tokens and flow:
            codes = LEVELS**tokens.code_dims
            _agree("speech tokens", "speech tokenizer", codes, "flow", flow.speech_tokens)
        if speaker:
            _agree("bins", "speaker encoder", speaker.feat, "recording", KALDI_BINS)
            _require(
                len(speaker.block_layers) == len(speaker.dilations),
                "block_layers and dilations differ in length",
            )
            _require(speaker.kernel % 2 == 1, "the speaker encoder's kernel is not odd")
        if speaker and flow:
            _agree("embedding", "speaker encoder", speaker.embedding, "flow", flow.speaker)


def _require(consistent: bool, complaint: str) -> None:
    if not consistent:
        raise ValueError(complaint)


def _agree(what: str, one: str, ours: int, other: str, theirs: int) -> None:
    _require(ours == theirs, f"{what}: the {one} has {ours}, the {other} {theirs}")
