"""What a speech LM and a token2wav are asked, wherever they run."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from cosyserve.contracts import FinishReason, Floats, Sampling, Voice


@dataclass(frozen=True)
class LMRequest:
    """What a speech LM is asked to continue.

    `text` holds the ids of prompt text and target text, `speech` the prompt's speech tokens
    (plain, 0..). Between `min_tokens` and `max_tokens` speech tokens are drawn. Fewer than
    `first_chunk` of them are of no use at first, nor fewer than `chunk` later.
    """

    text: tuple[int, ...]
    speech: tuple[int, ...]
    min_tokens: int
    max_tokens: int
    seed: int = 0
    sampling: Sampling | None = None  # None: as the LM is best sampled
    first_chunk: int = 1
    chunk: int = 1
    log_probs: bool = False  # whether they are wanted


def limited(request: LMRequest, max_tokens: int) -> LMRequest:
    """The request with no more tokens than a runtime gives an utterance."""
    most = min(request.max_tokens, max_tokens)
    return replace(request, max_tokens=most, min_tokens=min(request.min_tokens, most))


@dataclass(frozen=True)
class SpeechTokens:
    """Speech tokens behind the ones before. The last piece carries a finish reason."""

    ids: tuple[int, ...]
    finish: FinishReason | None = None
    log_probs: tuple[float, ...] = ()  # one per id, where they were wanted


class LMBackend(Protocol):
    """A speech LM alone, for many at once: ours, a Triton model, an OpenAI-style server."""

    def generate(self, request: LMRequest) -> AsyncGenerator[SpeechTokens, None]:
        """Tokens as they are drawn. Closing the iterator cancels."""
        ...

    async def close(self) -> None: ...


class Token2WavStream(Protocol):
    """The audio side of one utterance; owns its state until `close`."""

    async def advance(self, tokens: Sequence[int], *, final: bool) -> Floats:
        """The next samples, given all tokens so far, look-ahead included."""
        ...

    async def close(self) -> None: ...


class Token2WavBackend(Protocol):
    """Flow and vocoder alone, for many at once."""

    def begin(
        self, voice: Voice, *, with_prompt: bool, seed: int, speed: float, stream: bool
    ) -> Token2WavStream: ...

    async def close(self) -> None: ...
