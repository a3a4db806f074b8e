"""The sizes of a flow: an encoder, then an estimator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from cosyserve.models.config.checks import require

POSITION_GROUPS = 16  # of channels, in the convolutions that tell CosyVoice3's DiT of positions


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
    kind: Literal["conformer"] = "conformer"

    def __post_init__(self) -> None:
        require(self.size % (2 * self.heads) == 0, "the encoder's size is no even number per head")


@dataclass(frozen=True)
class LookaheadConfig:
    """CosyVoice3's encoder: two convolutions that look ahead, then each token twice."""

    kind: Literal["lookahead"] = "lookahead"
    size: int = 80
    channels: int = 1024
    lookahead: int = 3  # tokens to the right that a frame may see
    chunk: int = 25  # tokens per chunk of the streaming mask


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
        require(self.frequency_size % 2 == 0, "frequency_size is odd")
        require(self.mlp_ratio * self.hidden >= 1, "mlp_ratio leaves nothing of hidden")


@dataclass(frozen=True)
class RotaryDiTConfig:
    """The CosyVoice3 flow estimator."""

    kind: Literal["rotary_dit"] = "rotary_dit"
    hidden: int = 1024
    depth: int = 22
    heads: int = 16
    head_dim: int = 64
    mlp_ratio: float = 2.0

    def __post_init__(self) -> None:
        require(self.head_dim % 2 == 0, "head_dim is odd")
        require(self.hidden % POSITION_GROUPS == 0, "hidden does not divide into its groups")
        require(self.mlp_ratio * self.hidden >= 1, "mlp_ratio leaves nothing of hidden")


@dataclass(frozen=True)
class FlowConfig:
    """Speech tokens in, mel frames out: the encoder, then an estimator for the Euler steps."""

    encoder: EncoderConfig | LookaheadConfig = field(default_factory=EncoderConfig)
    estimator: UNetConfig | DiTConfig | RotaryDiTConfig = field(default_factory=UNetConfig)
    speech_tokens: int = 6561
    mel: int = 80
    speaker: int = 192
    steps: int = 10
    guidance: float = 0.7
    max_frames: int = 15_000  # of the fixed noise: prompt and speech together

    def __post_init__(self) -> None:
        if isinstance(self.encoder, LookaheadConfig):
            require(self.encoder.size == self.mel, "the encoder's size is not that of the mel")

    @property
    def remembers(self) -> bool:
        """Whether a streamed chunk depends on where those before it ended."""
        return isinstance(self.estimator, DiTConfig)

    @property
    def copies(self) -> int:
        """Of each row that is estimated: one more for guidance."""
        return 2 if self.guidance else 1

    @property
    def grid(self) -> int:
        """A streamed chunk is exact when prompt and speech end on a multiple of this."""
        return 1 if self.remembers else self.encoder.chunk
