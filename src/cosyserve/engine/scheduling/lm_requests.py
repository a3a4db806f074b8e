"""From a request to what a speech LM is asked: one question per segment of the text.

Knows sizes and a tokenizer, no weights and no schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cosyserve.contracts import FRAMES_PER_TOKEN, LMRequest, Mode, SpeechRequest
from cosyserve.errors import CosyError, InputError
from cosyserve.models.config import LMConfig, ModelConfig
from cosyserve.text import TextTokenizer, segments, spoken_text
from cosyserve.text.numbers import Reader

END_OF_PROMPT = "<|endofprompt|>"
SEGMENT_SEEDS = 0x9E3779B9  # segments draw apart from each other, the same for the same request
RETRY_SEEDS = 0x5851F42D4C957F2D


@dataclass(frozen=True)
class LMTask:
    asked: LMRequest
    text_tokens: int  # of the segment alone, without what leads it

    def attempt(self, number: int) -> LMRequest:
        """The first attempt is number 0; others draw differently."""
        return replace(self.asked, seed=self.asked.seed + number * RETRY_SEEDS)


def questions(
    config: ModelConfig,
    tokenizer: TextTokenizer,
    request: SpeechRequest,
    text: str,
    positions: int,
    read: Reader,
) -> list[LMTask]:
    """`positions` is the room that the LM has for each; none: there is nothing to say."""
    assert config.lm
    lead, speech = prompt(request, tokenizer, config.lm.text_vocab, read)
    most = room(config, request)
    parts = segments(
        text, tokenizer.length, normalize=request.normalize, language=request.language, read=read
    )
    found = []
    for number, part in enumerate(parts):
        if not tokenizer.speaks(part):
            continue
        ids = encode(tokenizer, part, config.lm.text_vocab)
        asked = LMRequest(
            (*lead, *ids),
            tuple(speech),
            *_lengths(config.lm, len(ids), most, positions - len(lead) - len(ids) - len(speech)),
            request.seed + number * SEGMENT_SEEDS,
            request.sampling or config.sampling,
        )
        found.append(LMTask(asked, len(ids)))
    if parts and not found:
        raise InputError("the model knows no sound for any character of the text")
    return found


def _lengths(config: LMConfig, text_tokens: int, room: int, positions: int) -> tuple[int, int]:
    """How many speech tokens at least and at most, where so many positions are left."""
    least, most = (int(per_text * text_tokens) for per_text in config.speech_per_text)
    most = min(most, room, positions - 2)  # start and task
    if most < max(1, least // 2):
        raise InputError(
            f"voice and text leave {max(0, most)} positions for speech: shorten the text or use a "
            "shorter recording"
        )
    return least, most


def prompt(
    request: SpeechRequest, tokenizer: TextTokenizer, vocabulary: int, read: Reader
) -> tuple[list[int], list[int]]:
    """Text ids and speech tokens that lead the LM."""
    if request.mode is Mode.ZERO_SHOT:
        text = spoken_text(request.voice.prompt_text, read=read)
        return encode(tokenizer, text, vocabulary), request.voice.speech_tokens.tolist()
    if request.mode is Mode.INSTRUCT:
        instruction = request.instruction.strip()
        if not instruction.endswith(END_OF_PROMPT):
            instruction += END_OF_PROMPT
        return encode(tokenizer, instruction, vocabulary), []
    return [], []


def encode(tokenizer: TextTokenizer, text: str, vocabulary: int) -> list[int]:
    ids = tokenizer.encode(text)
    check_text(ids, vocabulary)
    return ids


def check_text(ids: Sequence[int], vocabulary: int) -> None:
    """Some tokenizers also have names for speech ids: a text must not hold them."""
    if ids and max(ids) >= vocabulary:
        raise InputError(
            f"the text holds the special token {max(ids)}, which is no text: remove it"
        )


def room(config: ModelConfig, request: SpeechRequest) -> int:
    """Speech tokens that fit behind the prompt."""
    assert config.flow
    prompt = len(request.voice.speech_tokens)
    tokens = config.flow.max_frames // FRAMES_PER_TOKEN
    left = tokens - prompt - config.flow.encoder.lookahead
    if left <= 0:
        raise CosyError("the voice's prompt fills the whole model")
    return left
