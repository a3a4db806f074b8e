"""One request in the caller's thread: audio chunks come out, whole or streamed.

The schedule is the server's own, with one session.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

from cosyserve.checkpoints.model import Model
from cosyserve.contracts import AudioChunk, Pushed, SpeechRequest
from cosyserve.engine.compute.token2wav import Token2Wav
from cosyserve.engine.scheduling.lm_requests import arriving_tokens
from cosyserve.engine.scheduling.start import scheduler_of
from cosyserve.engine.text_stream import by_part, by_sentence
from cosyserve.errors import CosyError, InputError
from cosyserve.text.pronunciation.ssml import is_ssml


def speak(
    model: Model, request: SpeechRequest, token2wavs: Sequence[Token2Wav] = ()
) -> Iterator[AudioChunk]:
    """Audio in order; the last chunk says how the speech ended. With `token2wavs` of earlier
    requests, what they know of voices need not be computed again."""
    if isinstance(request.text, AsyncIterator | Pushed):
        raise InputError("text in pieces must be an ordinary iterator here")
    if isinstance(request.text, str) and is_ssml(request.text):
        return by_part(request, lambda part: _speak(model, part, token2wavs))
    if isinstance(request.text, str) or model.config.takes_pieces:
        return _speak(model, request, token2wavs)
    return by_sentence(request, lambda sentence: _speak(model, sentence, token2wavs))


def _speak(
    model: Model, request: SpeechRequest, token2wavs: Sequence[Token2Wav]
) -> Iterator[AudioChunk]:
    assert isinstance(request.text, str | Iterator)
    scheduler = scheduler_of(model, token2wavs=token2wavs, slots=1)
    items: list[AudioChunk | CosyError] = []
    session = scheduler.open(request, items.append)
    text = None if isinstance(request.text, str) else _settled_ids(model, request, request.text)
    try:
        while not session.done:
            if not scheduler.step():
                assert text is not None, "a session that can't go on"
                piece = next(text, None)
                if piece is None:
                    session.end()
                else:
                    session.push(piece)
            for item in items:
                if isinstance(item, CosyError):
                    raise item
                yield item
            items.clear()
    finally:
        scheduler.cancel(session)


def _settled_ids(
    model: Model, request: SpeechRequest, pieces: Iterator[str]
) -> Iterator[list[int]]:
    """Text ids that can no longer change, as pieces of text arrive."""
    _, tokenizer = model.need_lm()
    ids = arriving_tokens(request, tokenizer)
    for piece in filter(None, pieces):
        yield ids.push(piece)
    yield ids.flush()
