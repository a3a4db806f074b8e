"""From a request to what a speech LM is asked: one task per segment of the text.

Sizes and a tokenizer are enough for that, so the LM may run anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple
from weakref import WeakKeyDictionary

from cosyserve.backends.protocols import LMRequest
from cosyserve.contracts import FRAMES_PER_TOKEN, SAMPLE_RATE, Mode, SpeechRequest, Voice
from cosyserve.engine.compute.limits import MAX_POSITIONS
from cosyserve.engine.scheduling.pace import Pace
from cosyserve.errors import InputError
from cosyserve.models.config import LMConfig, ModelConfig
from cosyserve.text import END_OF_PROMPT, ArrivingTokens, TextTokenizer, segments, spoken_text
from cosyserve.text.arriving.gate import ReadinessGate
from cosyserve.text.numbers import Reader, read_numbers
from cosyserve.text.pronunciation.lexicon import lexicon
from cosyserve.text.tokens.tokenizer import check_unicode

SEGMENT_SEEDS = 0x9E3779B9
RETRY_SEEDS = 0x5851F42D4C957F2D
MEASURED = 8  # parts of a text whose ids are known while it is cut

_transcripts: WeakKeyDictionary[Voice, str] = WeakKeyDictionary()  # as they are spoken


def segment_seed(seed: int, number: int) -> int:
    """Segments draw apart from each other, and the same for the same request."""
    return seed + number * SEGMENT_SEEDS


@dataclass(frozen=True)
class LMTask:
    """What the LM is asked for one segment."""

    request: LMRequest
    text_tokens: int  # of the segment alone, without what leads it
    least_tokens: int  # of speech: fewer have ended before the segment did
    pause: int  # samples of silence behind it

    def for_attempt(self, number: int) -> LMRequest:
        """The first attempt is number 0; others draw differently."""
        return replace(self.request, seed=self.request.seed + number * RETRY_SEEDS)


def lm_tasks(
    config: ModelConfig, tokenizer: TextTokenizer, request: SpeechRequest, text: str, read: Reader
) -> Iterator[LMTask]:
    """A task per segment, each when it is asked for; none where there is nothing to say."""
    assert config.lm
    tasks = _lm_tasks(config, config.lm, tokenizer, request, text, read)
    if request.final_pause or not config.lm.pause:
        return tasks
    return _without_final_pause(tasks)


def _without_final_pause(tasks: Iterator[LMTask]) -> Iterator[LMTask]:
    """The same tasks, each when the next is known: no pause is behind the last."""
    held: LMTask | None = None
    for task in tasks:
        if held:
            yield held
        held = task
    if held:
        yield replace(held, pause=0)


def _lm_tasks(
    config: ModelConfig,
    lm: LMConfig,
    tokenizer: TextTokenizer,
    request: SpeechRequest,
    text: str,
    read: Reader,
) -> Iterator[LMTask]:
    check_unicode(text)
    own, text = _own_prefix(lm, text)
    led = prompt(request, lm, tokenizer, own, read)
    lead, speech = (*led.prefix, *led.text), led.speech
    pace = Pace.of(config, len(led.text), len(speech), led.transcript)
    max_tokens = max_speech_tokens(config, request)
    pause = pause_samples(lm, request)
    known = lru_cache(MEASURED)(tokenizer.encode)  # a part is measured several times, then spoken
    parts = segments(
        text,
        tokenizer.length if tokenizer.pronouncer else lambda part: len(known(part)),
        normalize=request.normalize,
        language=request.language,
        read=read,
        lexicon=lexicon(request.lexicon, tokenizer.alphabets),
    )
    silent = spoken = False
    for number, part in enumerate(parts):
        ids = known(part)
        check_text(ids, lm.text_vocab)
        if not tokenizer.speaks(ids):
            silent = True
            continue
        left = MAX_POSITIONS - len(lead) - len(ids) - len(speech) - 2  # start and task
        min_tokens, limit = _lengths(lm, len(ids), min(max_tokens, left))
        lm_request = LMRequest(
            text=(*lead, *ids),
            speech=tuple(speech),
            min_tokens=min_tokens,
            max_tokens=limit,
            seed=segment_seed(request.seed, number),
            sampling=request.sampling,
        )
        yield LMTask(lm_request, len(ids), pace.least_tokens(len(ids), part), pause)
        spoken = True
    if silent and not spoken:
        raise InputError("the model knows no sound for any character of the text")


def arriving_tokens(
    request: SpeechRequest, tokenizer: TextTokenizer, read: Reader = read_numbers
) -> ArrivingTokens:
    """The ids of a request's text that is still to come."""
    gate = ReadinessGate(
        request.language,
        request.normalize,
        read=read,
        lexicon=lexicon(request.lexicon, tokenizer.alphabets),
    )
    return ArrivingTokens(tokenizer, gate)


def _lengths(config: LMConfig, text_tokens: int, limit: int) -> tuple[int, int]:
    """How many speech tokens at least and at most, where no more than `limit` fit."""
    min_tokens, max_tokens = (int(per_text * text_tokens) for per_text in config.speech_per_text)
    max_tokens = min(max_tokens, limit)
    if max_tokens < max(1, min_tokens // 2):
        raise InputError(
            f"voice and text leave {max(0, max_tokens)} positions for speech: shorten the text or "
            "use a shorter recording"
        )
    return min_tokens, max_tokens


class Prompt(NamedTuple):
    """What leads the LM: text ids up to <|endofprompt|> where it must begin with such, other text
    ids, speech tokens; and the text of those other ids."""

    prefix: list[int]
    text: list[int]
    speech: list[int]
    transcript: str = ""


def _own_prefix(config: LMConfig, text: str) -> tuple[str, str]:
    """What a text brings of the prompt, up to <|endofprompt|>, and what is to be said."""
    prefix, mark, said = text.rpartition(END_OF_PROMPT)
    return (prefix + mark, said) if config.preamble else ("", text)


def prompt(
    request: SpeechRequest, config: LMConfig, tokenizer: TextTokenizer, own: str, read: Reader
) -> Prompt:
    """How the LM is led to say a text that brings `own` of the prompt along; "": nothing."""
    if request.mode is Mode.INSTRUCT:
        ids = encode(tokenizer, _instruction(request, config.preamble), config.text_vocab)
        return Prompt(ids, [], []) if config.preamble else Prompt([], ids, [])
    transcript, speech = "", []
    if request.mode is Mode.ZERO_SHOT:
        transcript = _transcript(request.voice, read)
        speech = request.voice.speech_tokens.tolist()
    prefix = ""
    if config.preamble:
        stored, _, transcript = transcript.rpartition(END_OF_PROMPT)
        prefix = own or (stored or config.preamble) + END_OF_PROMPT
    return Prompt(
        encode(tokenizer, prefix, config.text_vocab),
        encode(tokenizer, transcript, config.text_vocab),
        speech,
        transcript,
    )


def _transcript(voice: Voice, read: Reader) -> str:
    """What is said in a voice's recording; it is read once, and known as long as the voice is."""
    spoken = _transcripts.get(voice)
    if spoken is None:
        spoken = _transcripts[voice] = spoken_text(voice.prompt_text, read=read)
    return spoken


def _instruction(request: SpeechRequest, preamble: str) -> str:
    """The instruction as the LM has learnt to read one."""
    instruction = request.instruction.strip()
    if not instruction.startswith(preamble):
        instruction = f"{preamble} {instruction}"
    return instruction if instruction.endswith(END_OF_PROMPT) else instruction + END_OF_PROMPT


def encode(tokenizer: TextTokenizer, text: str, vocabulary: int) -> list[int]:
    ids = tokenizer.encode(text)
    check_text(ids, vocabulary)
    return ids


def check_text(ids: Sequence[int], vocabulary: int) -> None:
    """Refuses speech ids in a text: some tokenizers have names for them."""
    if ids and max(ids) >= vocabulary:
        raise InputError(
            f"the text holds the special token {max(ids)}, which is no text: remove it"
        )


def pause_samples(config: LMConfig, request: SpeechRequest) -> int:
    """Silence behind every utterance, as fast as the speech is."""
    return round(config.pause * SAMPLE_RATE / request.speed)


def max_speech_tokens(config: ModelConfig, request: SpeechRequest) -> int:
    """Speech tokens that fit behind the prompt."""
    assert config.flow
    tokens = config.flow.max_frames // FRAMES_PER_TOKEN
    left = tokens - len(request.voice.speech_tokens) - config.flow.encoder.lookahead
    if left <= 0:
        raise InputError("the voice leaves no room for speech: use a shorter recording")
    return left
