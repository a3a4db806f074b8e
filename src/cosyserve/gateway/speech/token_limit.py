"""The end of speech that may have so many tokens and no more."""

from __future__ import annotations

from dataclasses import replace

from cosyserve.contracts import SAMPLES_PER_TOKEN, AudioChunk

MAX_HELD_BACK = 6 * SAMPLES_PER_TOKEN  # by a vocoder; more is SSML that is spoken faster


class TokenLimit:
    """Cuts speech where its last token ends. Samples may come chunks after their tokens; those of a
    pause are no token's."""

    def __init__(self, tokens: int, speed: float) -> None:
        self._left = tokens
        self._held_back = 0.0  # samples of tokens that have come
        self._samples_per_token = SAMPLES_PER_TOKEN / speed

    def push(self, chunk: AudioChunk) -> AudioChunk:
        """The chunk as far as it may be spoken; the last one has the finish reason `length`."""
        left, count = self._left, len(chunk.samples)
        whole = chunk.tokens < left or (chunk.final and chunk.tokens == left > 0)
        tokens = chunk.tokens if whole else left
        self._left -= tokens
        end = self._held_back + tokens * self._samples_per_token
        self._held_back = min(max(0.0, end - count), MAX_HELD_BACK)
        if whole:
            return chunk
        if count < round(end) and not chunk.final:
            return replace(chunk, tokens=tokens)
        return replace(chunk, samples=chunk.samples[: round(end)], tokens=tokens, finish="length")
