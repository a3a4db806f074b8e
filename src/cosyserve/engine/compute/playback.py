"""What a listener was sent of a request, and how much of it is still to be heard."""

from __future__ import annotations

from dataclasses import dataclass

from cosyserve.contracts import SAMPLE_RATE, AudioChunk, FinishReason, Floats, Timeline


@dataclass
class Playback:
    """Playback begins with the first chunk, and is as fast as speech."""

    chunks: int = 0
    samples: int = 0
    began: float | None = None  # when the first chunk was sent
    text_tokens: int = 0  # that were told
    retries: int = 0  # that were told

    def send(
        self,
        samples: Floats,
        tokens: int,
        now: float,
        finish: FinishReason | None = None,
        text_tokens: int = 0,
        timeline: Timeline | None = None,
        retries: int = 0,
    ) -> AudioChunk:
        """The next chunk; `text_tokens` and `retries` are all so far, and told once."""
        chunk = AudioChunk(
            samples=samples,
            index=self.chunks,
            start=self.samples / SAMPLE_RATE,
            tokens=tokens,
            finish=finish,
            text_tokens=text_tokens - self.text_tokens,
            timeline=timeline,
            retries=retries - self.retries,
        )
        self.text_tokens, self.retries = text_tokens, retries
        self.chunks += 1
        self.samples += len(samples)
        if self.began is None:
            self.began = now
        return chunk

    @property
    def end(self) -> float:
        """When the listener has heard all that was sent; 0 before the first chunk."""
        return 0.0 if self.began is None else self.began + self.samples / SAMPLE_RATE

    def slack(self, now: float) -> float:
        """Seconds of audio that the listener still has; less than 0 after an underrun."""
        if self.began is None:
            return 0.0
        return self.began + self.samples / SAMPLE_RATE - now
