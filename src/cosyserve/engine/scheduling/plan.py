"""From a request to utterances: what the LM is asked, and in which voice it is spoken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from cosyserve.audio import whisper_log_mel
from cosyserve.checkpoints.model import Model
from cosyserve.contracts import Mode, SpeechRequest
from cosyserve.engine.compute.generation import Generation, WholeText
from cosyserve.engine.compute.limits import MAX_POSITIONS
from cosyserve.engine.compute.token2wav import Token2Wav
from cosyserve.engine.scheduling.lm_requests import (
    LMTask,
    lm_tasks,
    max_speech_tokens,
    pause_samples,
    prompt,
    segment_seed,
)
from cosyserve.engine.scheduling.session import ARRIVING_TOKENS, Utterance
from cosyserve.errors import InputError
from cosyserve.models.lm.bistream import TEXT_RUN, Bistream
from cosyserve.text.numbers import Reader, read_numbers
from cosyserve.voices.fits import check_fits

AT_ONCE = 300  # characters of a text that is planned as a whole


@dataclass(frozen=True)
class PlannedUtterance:
    """A part of the text before it has a voice: the LM's row by attempt, its text ids, the fewest
    speech tokens that are all of it, and the samples of silence behind it."""

    generate: Callable[[int], Generation]
    text_tokens: int = 0
    least_tokens: int = 0
    pause: int = 0


class UtterancePlan:
    """The utterances of a request: of a long text only the first is made at once."""

    def __init__(self, request: SpeechRequest, utterances: Iterable[Utterance]) -> None:
        self._rest = iter(utterances)
        self.whole = not isinstance(request.text, str) or len(request.text) <= AT_ONCE
        self.first = list(self._rest if self.whole else islice(self._rest, 1))

    def next(self) -> Utterance | None:
        """Another one; None: there are no more."""
        return next(self._rest, None)


def plan(
    model: Model, token2wav: Token2Wav, request: SpeechRequest, read: Reader = read_numbers
) -> Iterator[Utterance]:
    """The utterances of a request, each when it is asked for."""
    check_fits(request.voice, model.config.voice_format)
    planned: Iterable[PlannedUtterance]
    if request.mode is Mode.CONVERT:
        planned = [_conversion(model, request)]
    elif isinstance(request.text, str):
        planned = _whole_text(model, request, request.text, read)
    else:
        planned = [_arriving_text(model, request, read)]
    number = -1
    for number, part in enumerate(planned):
        yield Utterance(
            part.generate,
            token2wav.begin(
                request.voice,
                with_prompt=request.mode is not Mode.PRESET,
                seed=segment_seed(request.seed, number),
                speed=request.speed,
            ),
            stream=request.stream,
            text_tokens=part.text_tokens,
            least_tokens=part.least_tokens,
            pause=part.pause,
            follows=number > 0,
        )
    if number < 0:
        raise InputError("there is nothing to say in the text")


def _whole_text(
    model: Model, request: SpeechRequest, text: str, read: Reader
) -> Iterator[PlannedUtterance]:
    config, tokenizer = model.need_text_side()
    sampling = model.config.sampling
    model.need_token2wav()

    def planned(task: LMTask) -> PlannedUtterance:
        return PlannedUtterance(
            lambda attempt: Generation.from_request(config, task.for_attempt(attempt), sampling),
            task.text_tokens,
            task.least_tokens,
            task.pause,
        )

    return map(planned, lm_tasks(model.config, tokenizer, request, text, read))


def _arriving_text(model: Model, request: SpeechRequest, read: Reader) -> PlannedUtterance:
    lm, tokenizer = model.need_lm()
    led = prompt(request, lm.config, tokenizer, "", read)
    taken = sum(map(len, led[:3])) + ARRIVING_TOKENS + ARRIVING_TOKENS // TEXT_RUN + TEXT_RUN
    max_tokens = min(max_speech_tokens(model.config, request), MAX_POSITIONS - taken)
    if max_tokens <= 0:
        raise InputError("the voice leaves no room for text: use a shorter recording")
    return PlannedUtterance(
        lambda attempt: Generation(
            text=Bistream(lm.config, led.text, led.speech, led.prefix),
            seed=request.seed,
            sampling=request.sampling or model.config.sampling,
            max_tokens=max_tokens,
        ),
        pause=pause_samples(lm.config, request) if request.final_pause else 0,
    )


def _conversion(model: Model, request: SpeechRequest) -> PlannedUtterance:
    """No LM: the tokens of a recording, ready from the start."""
    assert request.source is not None
    config, _ = model.need_text_side()
    tokenizer, _ = model.need_prompt_encoders()
    tokens = tokenizer(whisper_log_mel(request.source)).tolist()
    if not tokens or len(tokens) > max_speech_tokens(model.config, request):
        raise InputError("the source recording is empty, or too long to convert at once: cut it")
    return PlannedUtterance(
        lambda attempt: Generation(
            text=WholeText(config, [], min_tokens=0),
            seed=0,
            sampling=model.config.sampling,
            max_tokens=len(tokens),
            tokens=tokens,
            finish="stop",
        )
    )
