"""The times of words, for clients that ask for them: a request's text and speech, overheard."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from pydantic import BaseModel

from cosyserve.alignment.aligner import Aligner, WordTime
from cosyserve.contracts import AudioChunk, SpeechRequest
from cosyserve.text.pronunciation.ssml import is_ssml, read_ssml


class WordTimes(BaseModel):
    """Words with their marks, and the seconds of the speech at which each begins and ends."""

    words: list[str]
    start: list[float]
    end: list[float]

    @classmethod
    def of(cls, told: Sequence[WordTime]) -> WordTimes:
        return cls(
            words=[time.word for time in told],
            start=[time.start for time in told],
            end=[time.end for time in told],
        )


class Spoken(BaseModel):
    """What a listener has heard who plays the speech from its first audio on."""

    seconds: float = 0.0
    words: int = 0
    characters: int = 0  # of the text

    def after(self, earlier: Spoken, characters: int) -> Spoken:
        """The same of a text that goes on: `characters` of it are before this speech."""
        return Spoken(
            seconds=round(earlier.seconds + self.seconds, 3),
            words=earlier.words + self.words,
            characters=characters + self.characters,
        )


class WordClock:
    """Follows one request. `request` has the same text, which is overheard where it arrives.

    `listen` is called from worker threads, one call at a time; it alone uses the aligner, so that
    pieces of text wait for it.
    """

    def __init__(self, request: SpeechRequest) -> None:
        self._aligner: Aligner | None = None  # opened in a worker thread: it reads files
        self._asked = request
        self._arrived: deque[str] = deque()
        self._ended = False
        self.told: list[WordTime] = []
        self.request = request
        if isinstance(request.text, AsyncIterator):
            self.request = replace(request, text=self._overheard(request.text))

    def listen(self, chunk: AudioChunk) -> list[WordTime]:
        """The words that are sure now; those of the whole text with its last chunk."""
        if self._aligner is None:
            self._aligner = self._open()
        ended = self._ended  # asked first: then all pieces are there
        pieces = [self._arrived.popleft() for _ in range(len(self._arrived))]
        self._aligner.push_text("".join(pieces))
        if ended:
            self._aligner.end_text()
        told = self._aligner.push(chunk.samples)
        if chunk.final:
            told += self._aligner.finish(cut=chunk.finish != "stop")
        self.told += told
        return told

    def spoken(self, seconds: float) -> Spoken:
        """The words that have ended within the first seconds."""
        heard = [time for time in self.told if time.end <= seconds]
        characters = heard[-1].characters if heard else 0
        return Spoken(seconds=round(seconds, 3), words=len(heard), characters=characters)

    def _open(self) -> Aligner:
        request = self._asked
        lexicon = dict(request.lexicon)
        if isinstance(request.text, str):
            text, self._ended = request.text, True
            if is_ssml(text):
                ssml = read_ssml(text)
                text = " ".join(part.text for part in ssml.parts)
                lexicon |= ssml.lexicon
            self._arrived.append(text)
        return Aligner(request.language, lexicon, request.speed)

    async def _overheard(self, pieces: AsyncIterator[str]) -> AsyncIterator[str]:
        async for piece in pieces:
            self._arrived.append(piece)
            yield piece
        self._ended = True
