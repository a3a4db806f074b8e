"""From a request to utterances: which text goes to the LM, led by what, in which voice.

Knows no schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cosyserve.audio import whisper_log_mel
from cosyserve.contracts import FRAMES_PER_TOKEN, CosyError, InputError, Mode, SpeechRequest
from cosyserve.engine.generation import MAX_TOKENS_PER_TEXT, Generation, WholeText
from cosyserve.engine.session import Utterance
from cosyserve.engine.token2wav import Token2Wav
from cosyserve.models.bistream import Bistream
from cosyserve.models.model import Model
from cosyserve.text import TextTokenizer, segments, spoken_text
from cosyserve.voices.enroll import check_fits

END_OF_PROMPT = "<|endofprompt|>"
SEGMENT_SEEDS = 0x9E3779B9  # segments draw apart from each other, the same for the same request
RETRY_SEEDS = 0x5851F42D4C957F2D


def plan(
    model: Model, token2wav: Token2Wav, request: SpeechRequest, positions: int
) -> list[Utterance]:
    """The utterances of a request; `positions` is the room that the LM has for each."""
    check_fits(request.voice, model)
    if request.mode is Mode.CONVERT:
        generations = [_converted(model, request)]
    elif isinstance(request.text, str):
        generations = _spoken(model, request, request.text, positions)
    else:
        generations = [_arriving(model, request, positions)]
    if not generations:
        raise InputError("there is nothing to say in the text")
    return [
        Utterance(
            make(0),
            token2wav.begin(
                request.voice,
                with_prompt=request.mode is not Mode.PRESET,
                seed=request.seed + number * SEGMENT_SEEDS,
                speed=request.speed,
            ),
            request.stream,
            make,
        )
        for number, make in enumerate(generations)
    ]


def _spoken(
    model: Model, request: SpeechRequest, text: str, positions: int
) -> list[Callable[[int], Generation]]:
    lm, tokenizer = model.need_lm()
    config = lm.config
    lead, speech = _prompt(request, tokenizer, config.text_vocab)
    room = _room(model, request)

    def generation(number: int, ids: list[int]) -> Callable[[int], Generation]:
        prompt = [config.sos, *lead, *ids, config.task, *(config.text_vocab + t for t in speech)]
        most = min(MAX_TOKENS_PER_TEXT * len(ids), room, positions - len(prompt))
        if most < len(ids):
            raise InputError(
                f"voice and text take {len(prompt)} of {positions} positions: shorten the "
                "text or use a shorter recording"
            )

        def make(attempt: int) -> Generation:
            seed = request.seed + number * SEGMENT_SEEDS + attempt * RETRY_SEEDS
            return Generation(WholeText(config, prompt, len(ids)), seed, request.sampling, most)

        return make

    parts = segments(text, tokenizer.length, normalise=request.normalise)
    return [
        generation(number, _encode(tokenizer, part, config.text_vocab))
        for number, part in enumerate(parts)
    ]


def _arriving(model: Model, request: SpeechRequest, positions: int) -> Callable[[int], Generation]:
    lm, tokenizer = model.need_lm()
    lead, speech = _prompt(request, tokenizer, lm.config.text_vocab)
    most = min(_room(model, request), positions // 2 - len(lead) - len(speech))
    return lambda attempt: Generation(
        Bistream(lm.config, lead, speech), request.seed, request.sampling, most
    )


def _converted(model: Model, request: SpeechRequest) -> Callable[[int], Generation]:
    """No LM: the tokens of a recording, ready from the start."""
    assert request.source is not None
    lm, _ = model.need_lm()
    tokenizer, _ = model.need_prompt_encoders()
    tokens = tokenizer(whisper_log_mel(request.source)).tolist()
    if not tokens or len(tokens) > _room(model, request):
        raise InputError("the source recording is empty, or too long to convert at once: cut it")
    return lambda attempt: Generation(
        WholeText(lm.config, [], 0), 0, request.sampling, len(tokens), tokens, finish="stop"
    )


def _prompt(
    request: SpeechRequest, tokenizer: TextTokenizer, vocabulary: int
) -> tuple[list[int], list[int]]:
    """Text ids and speech tokens that lead the LM."""
    if request.mode is Mode.ZERO_SHOT:
        text = spoken_text(request.voice.prompt_text)
        return _encode(tokenizer, text, vocabulary), request.voice.speech_tokens.tolist()
    if request.mode is Mode.INSTRUCT:
        instruction = request.instruction.strip()
        if not instruction.endswith(END_OF_PROMPT):
            instruction += END_OF_PROMPT
        return _encode(tokenizer, instruction, vocabulary), []
    return [], []


def _encode(tokenizer: TextTokenizer, text: str, vocabulary: int) -> list[int]:
    ids = tokenizer.encode(text)
    check_text(ids, vocabulary)
    return ids


def check_text(ids: Sequence[int], vocabulary: int) -> None:
    """Some tokenizers also have names for speech ids: a text must not hold them."""
    if ids and max(ids) >= vocabulary:
        raise InputError(
            f"the text holds the special token {max(ids)}, which is no text: remove it"
        )


def _room(model: Model, request: SpeechRequest) -> int:
    """Speech tokens that fit behind the prompt."""
    flow, _ = model.need_token2wav()
    prompt = len(request.voice.speech_tokens)
    room = flow.config.max_frames // FRAMES_PER_TOKEN - prompt - flow.lookahead
    if room <= 0:
        raise CosyError("the voice's prompt fills the whole model")
    return room
