"""From a request to utterances: what the LM is asked, in which voice it is spoken.

Knows no schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cosyserve.audio import whisper_log_mel
from cosyserve.checkpoints.model import Model
from cosyserve.contracts import Mode, SpeechRequest
from cosyserve.engine.compute.generation import Generation, WholeText
from cosyserve.engine.compute.token2wav import Token2Wav
from cosyserve.engine.scheduling.lm_requests import SEGMENT_SEEDS, LMTask, prompt, questions, room
from cosyserve.engine.scheduling.session import Utterance
from cosyserve.errors import InputError
from cosyserve.models.lm.bistream import TEXT_RUN, Bistream
from cosyserve.text.numbers import Reader, read_numbers
from cosyserve.voices.fits import check_fits

ARRIVING_TOKENS = 1024  # of a text that arrives piece by piece


@dataclass(frozen=True)
class Speech:
    """What the LM is to say: its generation by attempt, and the text ids it says."""

    make: Callable[[int], Generation]
    text_tokens: int = 0


def plan(
    model: Model,
    token2wav: Token2Wav,
    request: SpeechRequest,
    positions: int,
    read: Reader = read_numbers,
) -> list[Utterance]:
    """The utterances of a request; `positions` is the room that the LM has for each."""
    check_fits(request.voice, model.config.voice_format)
    if request.mode is Mode.CONVERT:
        speeches = [_converted(model, request)]
    elif isinstance(request.text, str):
        speeches = _spoken(model, request, request.text, positions, read)
    else:
        speeches = [_arriving(model, request, positions, read)]
    if not speeches:
        raise InputError("there is nothing to say in the text")
    return [
        Utterance(
            speech.make(0),
            token2wav.begin(
                request.voice,
                with_prompt=request.mode is not Mode.PRESET,
                seed=request.seed + number * SEGMENT_SEEDS,
                speed=request.speed,
            ),
            request.stream,
            speech.make,
            speech.text_tokens,
        )
        for number, speech in enumerate(speeches)
    ]


def _spoken(
    model: Model, request: SpeechRequest, text: str, positions: int, read: Reader
) -> list[Speech]:
    lm, tokenizer = model.need_lm()
    model.need_token2wav()

    def spoken(question: LMTask) -> Speech:
        return Speech(
            lambda attempt: Generation.of(lm.config, question.attempt(attempt)),
            question.text_tokens,
        )

    found = questions(model.config, tokenizer, request, text, positions, read)
    return [spoken(question) for question in found]


def _arriving(model: Model, request: SpeechRequest, positions: int, read: Reader) -> Speech:
    lm, tokenizer = model.need_lm()
    lead, speech = prompt(request, tokenizer, lm.config.text_vocab, read)
    taken = len(lead) + len(speech) + ARRIVING_TOKENS + ARRIVING_TOKENS // TEXT_RUN + TEXT_RUN
    most = min(room(model.config, request), positions - taken)
    if most <= 0:
        raise InputError("the voice leaves no room for text: use a shorter recording")
    return Speech(
        lambda attempt: Generation(
            Bistream(lm.config, lead, speech),
            request.seed,
            request.sampling or model.config.sampling,
            most,
        )
    )


def check_arrived(text_tokens: int) -> None:
    """A text that arrives piece by piece must leave room for its speech."""
    if text_tokens > ARRIVING_TOKENS:
        raise InputError(
            f"a text that arrives piece by piece may have {ARRIVING_TOKENS} tokens: begin another "
            "request"
        )


def _converted(model: Model, request: SpeechRequest) -> Speech:
    """No LM: the tokens of a recording, ready from the start."""
    assert request.source is not None
    lm, _ = model.need_lm()
    tokenizer, _ = model.need_prompt_encoders()
    tokens = tokenizer(whisper_log_mel(request.source)).tolist()
    if not tokens or len(tokens) > room(model.config, request):
        raise InputError("the source recording is empty, or too long to convert at once: cut it")
    return Speech(
        lambda attempt: Generation(
            WholeText(lm.config, [], 0),
            0,
            model.config.sampling,
            len(tokens),
            tokens,
            finish="stop",
        )
    )
