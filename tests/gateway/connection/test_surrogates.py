"""However a text is cut between UTF-16 code units, its characters are whole."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.gateway.connection.surrogates import CharacterJoiner, read_json
from tests.gateway.talking import utf16_pieces

TEXT_PATH = ["payload", "text"]


def joined(*pieces: str) -> str:
    joiner = CharacterJoiner()
    return "".join(map(joiner.push, pieces))


@given(text=st.text(st.sampled_from("a \N{GRINNING FACE}\U00020000é")), size=st.integers(1, 5))
def test_pieces_are_joined(text: str, size: int) -> None:
    pieces = utf16_pieces(text, size)
    assert joined(*pieces) == text
    sent = [json.dumps({"payload": {"text": piece}}) for piece in pieces]
    assert [read_json(data, TEXT_PATH)["payload"]["text"] for data in sent] == pieces


@given(st.lists(st.text(st.sampled_from("a\ud83d\ude00\udfff\ud800"))))
def test_no_half_is_left(pieces: list[str]) -> None:
    whole = joined(*pieces)
    whole.encode()  # would fail
    assert whole.count("a") == "".join(pieces).count("a")


def test_a_half_is_forgotten() -> None:
    joiner = CharacterJoiner()
    joiner.push("a\ud83d")
    joiner.reset()
    assert joiner.push("\ude00b") == "b"


@pytest.mark.parametrize(
    "data",
    [
        r'{"payload": {"text": "a", "voice": "\ud83d"}}',
        r'{"payload": {"text": "\ud83d", "voice": "\ud83d"}}',
        r'{"payload": {"text": ["\ud83d"]}}',
        r'{"payload": {"text": {"\ud83d": 1}}}',
        r'{"payload": [{"text": "\ud83d"}]}',
        r'{"payload": {"\ud83d": 1}}',
        r'{"text": "\ud83d"}',
        r'["\ud83d"]',
        r'"\ud83d"',
        r'{"payload": {"text": "\ud83d"}',
        r'{"payload": {"text": "\ud83"}}',
        r'{"payload": {"text": "\ud83d"}, "more": ' + 500 * "[" + 500 * "]" + "}",
        r'{"payload": {"text": "\ud83d"}, "more": ' + 5000 * "9" + "}",
    ],
    ids=lambda data: str(data)[:40],
)
def test_what_is_refused(data: str) -> None:
    with pytest.raises(ValueError, match=r"surrogate|line 1 column|number"):
        read_json(data, TEXT_PATH)


def test_where_no_pieces_come() -> None:
    with pytest.raises(ValueError, match="hex escape"):
        read_json(r'{"payload": {"text": "\ud83d"}}', ())
