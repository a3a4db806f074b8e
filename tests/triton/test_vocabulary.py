from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.backends.protocols import LMRequest
from cosyserve.errors import InputError, LLMServerError
from cosyserve.triton.vocabulary import COSYVOICE2, COSYVOICE3, TritonVocabulary, vocabulary_of

BOTH = [COSYVOICE2, COSYVOICE3]


@given(st.sampled_from(BOTH), st.lists(st.integers(0, 151_662)), st.lists(st.integers(0, 6560)))
def test_a_prompt_survives_the_journey(
    family: TritonVocabulary, text: list[int], speech: list[int]
) -> None:
    ids = family.lm.prompt(LMRequest(tuple(text), tuple(speech), 0, 1))
    assert family.lm.parse(ids) == (tuple(text), tuple(speech))
    assert family.tokens(family.ids(speech)) == tuple(speech)


def test_ids_are_the_published_ones() -> None:
    two, three = COSYVOICE2.lm, COSYVOICE3.lm
    assert COSYVOICE2.ids([0, 6560]) == two.ids([0, 6560]) == [151_663, 158_223]
    assert (two.end, two.start, two.task) == (158_224, 158_227, 158_228)
    assert COSYVOICE3.ids([0, 6560]) == [0, 6560]
    assert three.ids([0]) == [151_924]
    assert (three.start, three.end, three.task) == (158_485, 158_486, 158_487)
    assert three.ends == range(158_485, 158_685)
    assert vocabulary_of("cosyvoice3") is COSYVOICE3
    assert vocabulary_of("nano") is COSYVOICE2


def test_a_bias_leaves_speech_and_the_learnt_end() -> None:
    assert COSYVOICE2.lm.bias is None
    lm, bias = COSYVOICE3.lm, COSYVOICE3.lm.bias
    assert bias is not None
    assert len(bias) == 158_720  # as many rows as the published form has
    assert np.flatnonzero(bias == 0).tolist() == [*range(lm.text, lm.ends.start), lm.end]
    assert np.isfinite(bias.astype(np.float16)).all()


def test_ends_are_no_speech_and_text_is_an_error() -> None:
    lm = COSYVOICE3.lm
    assert lm.tokens([lm.text + 5, lm.start, lm.end, lm.ends[-1]]) == (5,)
    for number in (lm.text - 1, lm.ends.stop):
        with pytest.raises(LLMServerError, match=f"the id {number}"):
            lm.tokens([number])


@pytest.mark.parametrize("family", BOTH)
def test_what_is_no_prompt_is_refused(family: TritonVocabulary) -> None:
    lm = family.lm
    for ids in (
        [],
        [1, 2, 3],
        [lm.start, 1],
        [lm.start, lm.task, lm.task],
        [lm.start, -1, lm.task],
        [lm.start, lm.text, lm.task],
        [lm.start, 1, lm.task, 1],
        [lm.start, 1, lm.task, lm.end],
    ):
        with pytest.raises(InputError):
            lm.parse(ids)
    for number in (family.first - 1, family.first + 6561):
        with pytest.raises(InputError, match="speech ids must be"):
            family.tokens([number])
