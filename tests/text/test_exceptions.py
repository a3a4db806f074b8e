"""The table of words that are not said as they are spelled."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.text import exceptions
from cosyserve.text.exceptions import Exceptions

TABLE = Exceptions({"ramirez": "ɹəmˈɪɹɛz", "mateo": "mətˈAO", "scott": "skˈɑt", "wi-fi": "wˈIfˌI"})
WORDS = st.text("abcz'-", min_size=1, max_size=4)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("mateo", "mətˈAO"),
        ("mateo's", "mətˈAOz"),
        ("mateos", "mətˈAOz"),
        ("scott's", "skˈɑts"),
        ("ramirez's", "ɹəmˈɪɹɛzᵻz"),
        ("ramirezes", "ɹəmˈɪɹɛzᵻz"),
        ("wi-fi", "wˈIfˌI"),
        ("mate", None),
        ("mateoss", None),
        ("mateoes", None),
        ("s", None),
        ("", None),
    ],
)
def test_words_their_plurals_and_possessives(word: str, said: str | None) -> None:
    assert TABLE.get(word) == said


@given(st.dictionaries(WORDS, st.text("ptkˈɑ", min_size=1, max_size=4), max_size=30))
def test_every_word_is_found_and_kept(said: dict[str, str]) -> None:
    table = Exceptions.unpacked(Exceptions(said).packed())
    assert len(table) == len(said)
    assert {word: table.get(word) for word in said} == said
    assert table.get("zzzzz") is None


def test_what_is_no_table_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = TABLE.packed()
    no_text = zlib.compress(b"mateo \xff\n")
    for broken in (b"", b"nonsense", whole[:-1], zlib.compress(b"mateo"), no_text):
        with pytest.raises(ValueError, match="table of exceptions"):
            Exceptions.unpacked(broken)
    monkeypatch.setattr(exceptions, "MAX_BYTES", 10)
    with pytest.raises(ValueError, match="too long"):
        Exceptions.unpacked(whole)
