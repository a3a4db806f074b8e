"""Speech tokens out of text that comes in any pieces."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.backends.token_text import ENDS, MAX_FOREIGN, TokenReader, to_text
from cosyserve.backends.vocabulary import COSYVOICE3
from cosyserve.errors import LLMServerError


@given(st.lists(st.integers(0, 6560)), st.lists(st.integers(0, 200)), st.sampled_from(["", *ENDS]))
def test_cuts_do_not_matter(tokens: list[int], cuts: list[int], end: str) -> None:
    text = to_text(tokens) + end
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    reader = TokenReader(6561)
    found = [token for start, stop in pairwise(places) for token in reader.read(text[start:stop])]
    reader.close()
    assert found == tokens
    assert reader.ended == bool(end)


def test_nothing_counts_after_the_end() -> None:
    reader = TokenReader(6561)
    assert reader.read("<|s_1|><|eos1|><|s_2|>") == [1]
    assert reader.read("<|s_3|> and so on" * 10) == []


@pytest.mark.parametrize("end", ["<|s_6565|>", "<|s_6760|>", "<|sos|>", "<|task_id|>", "<|fill|>"])
def test_cosyvoice3_ends_by_many_names(end: str) -> None:
    reader = TokenReader(6561, COSYVOICE3.numbered)
    assert reader.read(f"<|s_6560|>{end}<|s_1|>") == [6560]
    assert reader.ended
    with pytest.raises(LLMServerError, match="another model"):
        TokenReader(6561, COSYVOICE3.numbered).read("<|s_6761|>")


def test_blanks_between_tokens_are_no_text() -> None:
    reader = TokenReader(6561)
    assert reader.read(" <|s_1|> \n<|s_2|>" * 50) == [1, 2] * 50


def test_a_little_foreign_text_is_forgiven_and_more_is_not() -> None:
    reader = TokenReader(6561)
    assert reader.read("x" * MAX_FOREIGN + "<|s_1|>") == [1]
    with pytest.raises(LLMServerError, match="writes text instead of speech tokens"):
        reader.read("<|s_2|>y")


@pytest.mark.parametrize("foreign", ["<|im_start|>", "<|s_|>", "<|s_-1|>", "<<<", "<|s_12345678|>"])
def test_what_looks_like_a_token_but_is_none_is_foreign(foreign: str) -> None:
    def read(text: str) -> list[int]:
        reader = TokenReader(6561)
        return [token for letter in text for token in reader.read(letter)]

    assert read(foreign) == []
    with pytest.raises(LLMServerError, match="text instead of speech"):
        read(foreign * MAX_FOREIGN)


def test_a_token_that_the_model_lacks() -> None:
    with pytest.raises(LLMServerError, match="6561 speech tokens"):
        TokenReader(6561).read("<|s_6561|>")


def test_half_a_token_at_the_end() -> None:
    reader = TokenReader(6561)
    reader.read("<|s_1|><|s_2")
    with pytest.raises(LLMServerError, match="within a token"):
        reader.close()
