from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.text.abbreviations import spoken_words


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("Call me, e.g. after lunch.", "Call me, for example after lunch."),
        ("Fruit, e.g., apples, i.e. food", "Fruit, for example, apples, that is food"),
        ("Cats, dogs, etc. are pets.", "Cats, dogs, et cetera are pets."),
        ("Cats, dogs, etc. Then we left.", "Cats, dogs, et cetera. Then we left."),
        ("Cats, dogs, etc.", "Cats, dogs, et cetera."),
        ("Acme Inc. grew. (So did Acme Ltd.)", "Acme incorporated grew. (So did Acme limited.)"),
        ("Dr. Wu vs. Mrs Jones", "doctor Wu versus missus Jones"),
        ("Dr. Lee lives on Oak St.", "doctor Lee lives on Oak street."),
        ("On Oak St. in St. Paul", "On Oak street in saint Paul"),
        ("The U.S. Army left the U.K.", "The U S Army left the U K."),
        ("J. R. R. Tolkien, George W. Bush", "J R R Tolkien, George double you Bush"),
        ("So do I. Then we go.", "So do I. Then we go."),
        ("Nine AM, the BBC and NASA", "Nine ay M, the B B C and NASA"),
        ("I AM so happy", "I AM so happy"),
        ("I AM WITH THE BBC", "I AM WITH THE B B C"),
        ("A Ph.D. from UCLA", "A P H D from U C L ay"),
        ("<|BTW|> [MN] hello", "<|BTW|> [MN] hello"),
        ("example.com, don't, a.b.c", "example.com, don't, a.b.c"),
    ],
)
def test_abbreviations_are_read_as_words_and_letters(written: str, said: str) -> None:
    assert spoken_words(written) == said


@given(st.text("abcdefghijklmnopqrstuvwxyz ,!?", max_size=40))
def test_plain_words_stay(text: str) -> None:
    assert spoken_words(text.replace("vs", "")) == text.replace("vs", "")
