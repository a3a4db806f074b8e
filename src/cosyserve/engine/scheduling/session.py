"""A session: one request and all of its state, until its last chunk or its end by force.

A long text is several utterances, spoken one after another.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cosyserve.contracts import (
    TOKENS_PER_SECOND,
    AudioChunk,
    FinishReason,
    Floats,
    SpeechRequest,
    Timeline,
)
from cosyserve.engine.compute.generation import Generation
from cosyserve.engine.compute.limits import OFFLINE_SLACK
from cosyserve.engine.compute.playback import Playback
from cosyserve.engine.compute.queued_audio import Token2WavState
from cosyserve.engine.scheduling.lm_requests import check_text
from cosyserve.engine.scheduling.take import Take
from cosyserve.errors import CosyError, InputError
from cosyserve.models.lm.bistream import Bistream

AudioSink = Callable[[AudioChunk | CosyError], None]

ARRIVING_TOKENS = 1024  # of a text that arrives piece by piece: it must leave room for its speech


class Utterance:
    """A part of the text on its way from the LM to samples."""

    generation: Generation
    take: Take

    def __init__(
        self,
        generate: Callable[[int], Generation],
        state: Token2WavState,
        *,
        stream: bool,
        text_tokens: int = 0,
        least_tokens: int = 0,
        pause: int = 0,
        follows: bool = False,
    ) -> None:
        """`generate`: the row of the LM for an attempt, the first being 0; fewer than
        `least_tokens` end too soon; `pause` samples of silence behind it; whether it `follows`
        another one of its session."""
        self.text_tokens = text_tokens
        self._least_tokens = least_tokens
        self._pause = pause
        self._follows = follows
        self._generate = generate
        self._initial_state = state
        self._stream = stream
        self._early: tuple[Generation, Take] | None = None  # the attempt that ended too soon
        self.begin(attempt=0)

    def redraw(self) -> None:
        """Once more, as it ended too soon."""
        self._early = self.generation, self.take
        self.begin(attempt=1)

    def keep_longer(self) -> None:
        """What was drawn again and ended even sooner was not heard: the first attempt is spoken."""
        if self._early and len(self.generation.tokens) < len(self._early[0].tokens):
            self.generation, self.take = self._early

    def begin(self, attempt: int) -> None:
        """From the start; nothing is left of earlier attempts."""
        state = self._initial_state
        self.attempt = attempt
        self.generation = self._generate(attempt)
        self.state = state
        self.take = Take(
            self.generation,
            stream=self._stream,
            prompt_tokens=state.prompt_tokens,
            grid=state.grid,
            lookahead=state.lookahead,
            hop=state.hop,
            fixed=state.fixed,
            least=self._least_tokens,
            pause=self._pause,
            follows=self._follows,
        )
        if self._stream:
            self.generation.enough = self.take.needed


@dataclass
class Passed:
    """When a session passed its stages, by the scheduler's clock."""

    entered: float = 0.0
    planned: float = 0.0
    queued: float = 0.0  # when it began to wait for a slot, once more if it was preempted
    admitted: float = 0.0  # the first time
    first_tokens: float = 0.0
    drawn: float | None = None

    def timeline(self, now: float) -> Timeline:
        return Timeline(
            planned=self.planned - self.entered,
            admitted=self.admitted - self.entered,
            first_tokens=self.first_tokens - self.entered,
            drawn=None if self.drawn is None else self.drawn - self.entered,
            sent=now - self.entered,
        )


_numbers = itertools.count()


@dataclass(eq=False)
class Session:
    """Without utterances, it is still being planned."""

    request: SpeechRequest
    sink: AudioSink
    device: int = 0  # the number of the token2wav that its chunks are computed by
    utterances: list[Utterance] = field(default_factory=list)  # the first is the one being spoken
    more: Callable[[], None] | None = None  # asks for another one; None: there are no more
    asked: bool = False  # for another one, which has not come
    number: int = field(default_factory=lambda: next(_numbers))
    playback: Playback = field(default_factory=Playback)
    passed: Passed = field(default_factory=Passed)
    text_tokens: int = 0
    ready_since: float | None = None  # when its next chunk could be computed
    stalled_since: float | None = None  # when the LM was first seen to wait for its text
    retries: int = 0  # of all its utterances
    finish: FinishReason = "stop"  # of its utterances, the first that did not end well
    done: bool = False
    stream: bool = field(init=False)

    def __post_init__(self) -> None:
        self.stream = self.request.stream

    @property
    def take(self) -> Take:
        return self.utterances[0].take

    @property
    def state(self) -> Token2WavState:
        return self.utterances[0].state

    @state.setter
    def state(self, state: Token2WavState) -> None:
        self.utterances[0].state = state

    @property
    def final(self) -> bool:
        return self.take.final

    def due(self) -> list[int]:
        return self.take.due()

    def extend(self) -> None:
        self.take.extend()

    @property
    def spare(self) -> int:
        return self.take.spare

    @property
    def ready(self) -> bool:
        """Whether its next chunk can be computed: before the last one of an utterance, it must be
        known whether another one follows."""
        unknown = self.more and len(self.utterances) == 1
        return self.take.ready and not (unknown and self.take.may_be_last)

    @property
    def runs_out(self) -> bool:
        """Whether the LM draws, or has drawn, the last utterance that is planned. While somebody
        waits for a first sound, nothing else is planned before it is drawn."""
        *before, last = (utterance.generation.finish is not None for utterance in self.utterances)
        return last or (all(before) and not self.urgent)

    def look_for_text(self, now: float) -> None:
        """Notes since when the LM has waited for some."""
        if not self.stalled:
            self.stalled_since = None
        elif self.stalled_since is None:
            self.stalled_since = now

    def ask(self) -> None:
        """Has another utterance planned, if there may be one."""
        if self.more and not self.asked:
            self.asked = True
            self.more()

    @property
    def growing(self) -> bool:
        """Not where the LM waits for whoever writes the text, nor where a chunk takes no more."""
        generation = self.utterances[0].generation
        drawing = generation.finish is None and not isinstance(generation.text, Bistream)
        return drawing and not self.state.fixed

    @property
    def stalled(self) -> bool:
        """Whether the LM waits for whoever writes the text, and so does the next chunk."""
        text = self.utterances[0].generation.text
        return isinstance(text, Bistream) and not self.take.ready and text.feed() is None

    @property
    def urgent(self) -> bool:
        """Whether somebody waits for a first sound."""
        return self.stream and not self.playback.chunks

    @property
    def reserve(self) -> float:
        """Seconds before a listener runs dry that tokens are wanted: the first chunk of an
        utterance that follows another one may need many."""
        return 0.0 if self.take.heard else -self.spare / TOKENS_PER_SECOND

    def slack(self, now: float) -> float:
        """Seconds of audio that the listener still has, or that a whole text may wait."""
        if self.stream:
            return self.playback.slack(now)
        return OFFLINE_SLACK - (0.0 if self.ready_since is None else now - self.ready_since)

    def drawn(self, row: Generation, now: float) -> None:
        """The LM has come to the end of an utterance; where that is too soon, it begins again."""
        self.passed.drawn = now
        for utterance in self.utterances:
            if utterance.generation is not row:
                continue
            if utterance.attempt:
                utterance.keep_longer()
            elif utterance.take.redraws:
                self.retries += 1
                utterance.redraw()

    def retry(self, utterance: Utterance) -> None:
        self.retries += 1
        utterance.begin(utterance.attempt + 1)

    def follow(self, utterance: Utterance | None) -> None:
        """Another utterance is planned; None: there are no more."""
        self.asked = False
        if utterance is None:
            self.more = None
        elif not self.done:
            self.utterances.append(utterance)
            self.text_tokens += utterance.text_tokens

    def push(self, text: Sequence[int]) -> None:
        """More text ids, where the text arrives piece by piece."""
        for stream in self._arriving():
            check_text(text, stream.config.text_vocab)
            self.text_tokens += len(text)
            if self.text_tokens > ARRIVING_TOKENS:
                raise InputError(
                    f"a text that arrives piece by piece may have {ARRIVING_TOKENS} tokens: begin "
                    "another request"
                )
            stream.push(text)

    def end(self) -> None:
        """The text that arrived piece by piece is over."""
        for stream in self._arriving():
            stream.end()

    def _arriving(self) -> list[Bistream]:
        texts = (utterance.generation.text for utterance in self.utterances)
        return [text for text in texts if isinstance(text, Bistream)]

    def send(self, samples: Floats, tokens: int, now: float, *, final: bool) -> None:
        """`final`: the utterance has come to its end."""
        last = final and len(self.utterances) == 1
        if final and self.finish == "stop":
            self.finish = self.take.finish or "stop"
        timeline = self.passed.timeline(now) if last or not self.playback.chunks else None
        chunk = self.playback.send(
            *(samples, tokens, now, self.finish if last else None),
            text_tokens=self.text_tokens,
            timeline=timeline,
            retries=self.retries,
        )
        self.ready_since = None
        self.done = last
        self.sink(chunk)

    def fail(self, error: CosyError) -> None:
        self.done = True
        self.sink(error)
