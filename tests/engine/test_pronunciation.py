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


@pytest.fixture(scope="module")
def pausing() -> Model:
    """The same with a pause of 2400 samples behind every utterance."""
    parts = random_parts()
    assert parts.config.lm
    lm = replace(parts.config.lm, pause=0.1)
    return assemble(replace(parts, config=replace(parts.config, lm=lm)))


@pytest.mark.parametrize(
    ("inner", "parts"),
    [
        ("One.<break time='300ms'/>Two.", [("One.", 1.0, 7200), ("Two.", 1.0, 2400)]),
        ("One.<break strength='none'/>Two.", [("One.", 1.0, 0), ("Two.", 1.0, 2400)]),
        ("One.<break time='300ms'/>", [("One.", 1.0, 7200)]),
        ("One.<break time='0s'/>", [("One.", 1.0, 0)]),
        (
            "One <prosody rate='200%'>two, </prosody>three.",
            [("One", 1.0, 0), ("two,", 2.0, 0), ("three.", 1.0, 2400)],
        ),
        (
            "<prosody rate='200%'>“One!”</prosody> Two <prosody rate='50%'>three</prosody>. Four.",
            [("“One!”", 2.0, 1200), ("Two", 1.0, 0), ("three.", 0.5, 4800), ("Four.", 1.0, 2400)],
        ),
    ],
)
def test_a_break_takes_the_place_of_the_models_own_pause(
    model: Model, pausing: Model, inner: str, parts: list[tuple[str, float, int]]
) -> None:
    expected: list[np.ndarray] = []
    for number, (text, speed, silence) in enumerate(parts):
        part = asked(model, text, seed=3 + number, speed=speed)
        expected += [heard(list(speak(model, part))), np.zeros(silence)]
    request = asked(pausing, f"<speak>{inner}</speak>")
    found = heard(list(speak(pausing, request)))
    np.testing.assert_array_equal(found, np.concatenate(expected))

    async def in_an_engine() -> list[AudioChunk]:
        engine = LocalEngine(pausing, slots=2)
        try:
            return [chunk async for chunk in engine.open(request)]
        finally:
            await engine.close()

    np.testing.assert_allclose(heard(asyncio.run(in_an_engine())), found, atol=1e-3)


def test_pauses_between_the_sentences_of_a_part_stay(model: Model, pausing: Model) -> None:
    text = " ".join(f"This is a rather long sentence, and its number is {n}." for n in range(9))
    whole, paused, final = (
        len(heard(list(speak(speaker, asked(speaker, text, stream=False, final_pause=pause)))))
        for speaker, pause in ((model, True), (pausing, True), (pausing, False))
    )
    pauses, rest = divmod(paused - whole, 2400)
    assert (pauses > 1, rest) == (True, 0)
    assert paused - final == 2400


def test_text_in_pieces_may_end_without_a_pause(pausing: Model) -> None:
    with_pause, without = (
        heard(
            list(
                speak(
                    pausing, replace(asked(pausing, "", final_pause=p), text=iter(["One ", "two."]))
                )
            )
        )
        for p in (True, False)
    )
    np.testing.assert_array_equal(with_pause, np.pad(without, (0, 2400)))


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
