"""A model of the small voice's size, with random weights: costs what it costs, says nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cosyserve.checkpoints import native, testmodel
from cosyserve.checkpoints.load import SHIPPED_FOLDER
from cosyserve.checkpoints.parts import Parts


def small_voice() -> Parts:
    """Its text is bytes, which need no pronunciation; an utterance has as many tokens as usual."""
    test, sizes = testmodel.random_parts(), native.read(SHIPPED_FOLDER, only=()).config
    assert sizes.lm
    assert test.tokenizer
    lm = replace(sizes.lm, text_vocab=test.tokenizer.vocab_size, speech_per_text=(1.3, 2.0))
    return testmodel.random_parts(replace(sizes, name="small", lm=lm, speech=False))


def write_small_voice(folder: Path) -> None:
    native.write(small_voice(), folder)
