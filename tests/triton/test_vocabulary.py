from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.backends.protocols import LMRequest
from cosyserve.errors import InputError
from cosyserve.triton import vocabulary


@given(st.lists(st.integers(0, 151_662)), st.lists(st.integers(0, 6560)))
def test_a_prompt_survives_the_journey(text: list[int], speech: list[int]) -> None:
    ids = vocabulary.prompt_ids(LMRequest(tuple(text), tuple(speech), 0, 1))
    assert vocabulary.parse_prompt(ids) == (tuple(text), tuple(speech))


def test_ids_are_the_published_ones() -> None:
    assert vocabulary.to_ids([0, 6560]) == [151_663, 158_223]
    assert (vocabulary.END, vocabulary.START, vocabulary.TASK) == (158_224, 158_227, 158_228)


@pytest.mark.parametrize(
    "ids",
    [
        [],
        [1, 2, 3],
        [vocabulary.START, 1],
        [vocabulary.START, vocabulary.TASK, vocabulary.TASK],
        [vocabulary.START, -1, vocabulary.TASK],
        [vocabulary.START, vocabulary.SPEECH, vocabulary.TASK],
        [vocabulary.START, 1, vocabulary.TASK, 1],
        [vocabulary.START, 1, vocabulary.TASK, vocabulary.END],
    ],
)
def test_what_is_no_prompt_is_refused(ids: list[int]) -> None:
    with pytest.raises(InputError):
        vocabulary.parse_prompt(ids)
