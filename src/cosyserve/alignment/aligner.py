"""Tells when each word of a text is heard, while its speech is being made.

A word is told once, as soon as the speech has gone on for SURE frames behind it. It depends on the
text and on the samples what is told, not on the pieces in which the samples come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cosyserve.alignment.listener import BLOCK, FRAME, Listener, load_net
from cosyserve.alignment.path import Path
from cosyserve.alignment.sounds import kinds_by_sound
from cosyserve.alignment.words import Words
from cosyserve.contracts import SAMPLE_RATE, Floats

SURE = 15  # frames: 0.3 s
SECONDS = FRAME / SAMPLE_RATE  # of a frame
FAINTEST = -7.0  # log likelihood: one strange frame must not outweigh all others of a word
WEIGHT = 0.6  # of what is heard, next to what is expected
PAUSE_COSTS = (6.0, 2.0, 0.5)  # by Pause
PACE_FRAMES = 100.0  # of words, after which their pace counts as much as the expected one


@dataclass(frozen=True)
class WordTime:
    """A word with its marks, and the seconds of the speech between which it is heard."""

    word: str
    start: float
    end: float
    characters: int  # of the text, up to the word's end


class Aligner:
    """One speech: its text with `push_text` and `end_text`, its samples with `push`; then `finish`.

    Text must have come before its speech does.
    """

    def __init__(
        self, language: str = "", lexicon: Mapping[str, str] | None = None, speed: float = 1.0
    ) -> None:
        """`language`, `lexicon` and `speed` as of a request."""
        self._words = Words(language, lexicon)
        self._listener = Listener()
        self._by_kind = kinds_by_sound().astype(np.float64).T
        self._frames = np.exp(load_net().durations[:, 0].astype(np.float64))  # of kinds
        self._pace = 1 / speed
        self._path = Path(load_net().durations, self._pace)
        self._borders = [0]  # before, between and behind the words that are on the path
        self._told = 0  # words
        self._end = 0.0  # seconds of the last one
        self._lasted = self._expected = 0.0  # frames of those that were told
        self._samples = 0

    @property
    def seconds(self) -> float:
        """Of the speech so far."""
        return self._samples / SAMPLE_RATE

    def push_text(self, piece: str) -> None:
        self._words.push(piece)

    def end_text(self) -> None:
        self._words.end()

    def push(self, samples: Floats) -> list[WordTime]:
        """The words that are sure now."""
        self._samples += len(samples)
        heard = self._listener.push(samples)
        told: list[WordTime] = []
        for block in range(0, len(heard), BLOCK):
            self._follow(heard[block : block + BLOCK])
            told += self._tell(self._path.best(), self._path.frames - SURE)
        return told

    def finish(self, *, cut: bool = False) -> list[WordTime]:
        """The other words: all of the text, or those that a speech which was cut has reached."""
        self._follow(self._listener.finish())
        path = self._path
        if cut:
            return self._tell(path.best(), path.frames)
        if path.reaches_last():
            return self._tell(path.last, path.frames)
        return self._share(path.frames)

    def _follow(self, heard: Floats) -> None:
        words = self._words.known
        for word in words[len(self._borders) - 1 :]:
            self._path.extend(word.sounds, PAUSE_COSTS[word.pause])
            self._borders.append(self._path.last)
        likely = np.log(np.exp(heard.astype(np.float64)) @ self._by_kind + 1e-12)
        self._path.push(WEIGHT * np.maximum(likely, FAINTEST))

    def _tell(self, border: int, sure: int) -> list[WordTime]:
        """The words up to a border that the speech has come to, if they end before a frame."""
        spans = {sound: (begin, end) for sound, begin, end in self._path.back_from(border)}
        told: list[WordTime] = []
        frame = 0
        while self._told < len(self._borders) - 1:
            first, last = self._borders[self._told], self._borders[self._told + 1]
            open_end = self._told == len(self._words.known) - 1 and not self._words.ended
            if open_end or last > border or last - 1 not in spans or spans[last - 1][1] > sure:
                break
            begin, frame = spans.get(first, spans[last - 1])[0], spans[last - 1][1]
            self._expected += float(self._frames[list(self._words.known[self._told].sounds)].sum())
            self._lasted += frame - begin
            told.append(self._timed(begin * SECONDS, frame * SECONDS))
        if told:
            self._path.settle(self._borders[self._told], frame)
            frames = PACE_FRAMES
            pace = (frames * self._pace + self._lasted) / (frames + self._expected)
            self._path.set_pace(pace)
        return told

    def _timed(self, start: float, end: float) -> WordTime:
        """The next word, told now: not before the last, not behind the speech."""
        start = min(max(start, self._end), self.seconds)
        self._end = min(max(end, start), self.seconds)
        word = self._words.known[self._told]
        self._told += 1
        return WordTime(word.text, round(start, 3), round(self._end, 3), word.characters)

    def _share(self, frames: int) -> list[WordTime]:
        """The rest of the words, in shares of the rest of a speech that is too short for them."""
        words = self._words.known[self._told :]
        weights = [float(self._frames[list(word.sounds)].sum()) for word in words]
        scale = max(0.0, frames * SECONDS - self._end) / max(1e-9, sum(weights))
        return [self._timed(self._end, self._end + weight * scale) for weight in weights]
