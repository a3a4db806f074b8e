"""Lexicons and SSML, heard."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from cosyserve.checkpoints.model import Model, assemble
from cosyserve.checkpoints.testmodel import random_parts
from cosyserve.contracts import AudioChunk, Mode, SpeechRequest
from cosyserve.engine.in_process import LocalEngine
from cosyserve.engine.speak import speak
from cosyserve.errors import InputError
from cosyserve.voices.shipped import default_voice

SSML = (
    "<speak>One.<break time='250ms'/><prosody rate='150%'>Two "
    "<sub alias='three'>3</sub>.</prosody></speak>"
)


@pytest.fixture(scope="module")
def model() -> Model:
    return assemble(random_parts())


def asked(model: Model, text: str, **options: object) -> SpeechRequest:
    request = SpeechRequest(text, default_voice(model), Mode.PRESET, seed=3, stream=True)
    return replace(request, **options)  # type: ignore[arg-type]


def heard(chunks: list[AudioChunk]) -> np.ndarray:
    return np.concatenate([chunk.samples for chunk in chunks])


def test_ssml_is_its_parts_and_the_pauses_between_them(model: Model) -> None:
    chunks = list(speak(model, asked(model, SSML)))
    one = heard(list(speak(model, asked(model, "One."))))
    two = heard(list(speak(model, asked(model, "Two three.", seed=4, speed=1.5))))
    np.testing.assert_array_equal(heard(chunks), np.concatenate([one, np.zeros(6000), two]))
    assert [chunk.index for chunk in chunks] == [*range(len(chunks))]
    assert sum(chunk.text_tokens for chunk in chunks) == len("One.Two three.")

    async def in_an_engine() -> list[AudioChunk]:
        engine = LocalEngine(model, slots=2)
        try:
            found = [chunk async for chunk in engine.open(asked(model, SSML))]
            with pytest.raises(InputError, match="no <voice>"):
                await anext(engine.open(asked(model, "<speak><voice/></speak>")))
            return found
        finally:
            await engine.close()

    np.testing.assert_allclose(heard(asyncio.run(in_an_engine())), heard(chunks), atol=1e-3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<speak><break/></speak>", "nothing to say"),
        ("<speak><prosody rate='9'>a</prosody></speak>", r"speed must be 0.25\.\.4"),
        ("<speak><phoneme ph='æ'>a</phoneme></speak>", "'a' is given in ARPAbet.*no sounds"),
    ],
)
def test_what_can_not_be_spoken_is_refused(model: Model, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        next(speak(model, asked(model, text)))


def test_a_lexicon_says_other_words(model: Model) -> None:
    lexicon = {"nginx": "engine x"}
    plain = heard(list(speak(model, asked(model, "I run engine x."))))
    named = heard(list(speak(model, asked(model, "I run nginx.", lexicon=lexicon))))
    np.testing.assert_array_equal(named, plain)
    with pytest.raises(InputError, match="'nginx' is given in ARPAbet"):
        next(speak(model, asked(model, "Hi.", lexicon={"nginx": "/x/".replace("x", "ɛks")})))


def test_a_lexicon_is_for_text_in_pieces_too(model: Model) -> None:
    pieces = replace(asked(model, ""), text=iter(["I ran ngi", "nx 3", " times."]))
    pieces = replace(pieces, lexicon={"nginx": "it"})
    told = sum(chunk.text_tokens for chunk in speak(model, pieces))
    assert told == len("I ran it three times.")
