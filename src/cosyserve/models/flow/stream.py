"""What a stream of the flow knows between two chunks."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from cosyserve.contracts import FRAMES_PER_TOKEN
from cosyserve.models.flow.dit import DiTCache
from cosyserve.models.flow.encoder import EncoderCache
from cosyserve.models.flow.unet import FlowPast


@dataclass(frozen=True)
class FlowPrompt:
    """tokens [p], mel [2p, mel], speaker [E]: what the flow continues; p may be 0. Prompts with the
    same key are the same; without one, nobody knows."""

    tokens: Tensor
    mel: Tensor
    speaker: Tensor
    key: str = ""


@dataclass(frozen=True)
class FlowCache:
    """What a DiT flow remembers of a stream: `frames` computed so far also index the noise."""

    encoder: EncoderCache
    steps: tuple[DiTCache, ...]
    frames: int


@dataclass(frozen=True)
class FlowState:
    """A stream between two chunks; `tokens` of it were turned into frames, chunk by chunk up to
    each of `ends`; `past` is what an incremental flow keeps."""

    prompt: FlowPrompt
    tokens: int = 0
    cache: FlowCache | None = None
    ends: tuple[int, ...] = ()
    past: FlowPast | None = None

    def after(self, mel: Tensor) -> FlowState:
        """With these frames [mel, n] done, too."""
        tokens = self.tokens + mel.shape[1] // FRAMES_PER_TOKEN
        return FlowState(self.prompt, tokens, None, (*self.ends, tokens))
