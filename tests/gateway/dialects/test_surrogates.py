"""Texts that JavaScript has cut inside a character, in every dialect."""

from __future__ import annotations

import pytest

from tests.gateway.dialects.twin import Twin, dialed
from tests.gateway.dialects.twins import TWINS
from tests.gateway.serving import Running
from tests.gateway.talking import utf16_pieces


@pytest.mark.parametrize("kind", TWINS)
@pytest.mark.parametrize("size", [1, 8, 13])
def test_a_text_may_be_cut_inside_a_character(server: Running, kind: type[Twin], size: int) -> None:
    text = "We all love \N{GRINNING FACE} pizza. \N{GRINNING FACE}\N{THUMBS UP SIGN} Good."
    with dialed(server, kind) as twin:
        assert not twin.error(twin.say(*utf16_pieces(text, size)).last)
    assert [spoken.strip() for spoken in server.engine.texts] == [text]


@pytest.mark.parametrize("kind", TWINS)
def test_a_half_of_a_character_is_left_out(server: Running, kind: type[Twin]) -> None:
    with dialed(server, kind) as twin:
        assert not twin.error(twin.say("\ude00One\ud83d", "", " two\ud83d", "\ud83d").last)
        twin.name = "b"
        assert not twin.error(twin.say("Three.").last)
    assert [text.strip() for text in server.engine.texts] == ["One two", "Three."]


@pytest.mark.parametrize("kind", TWINS)
def test_halves_of_characters_in_other_fields(server: Running, kind: type[Twin]) -> None:
    with dialed(server, kind) as twin:
        for half in ("context_id", "voice", "\ud800"):
            twin.send({"type": "Speak", "text": "a", "transcript": "a", half: "\ud800"})
            event = twin.hear_next()
            assert isinstance(event, dict)
            assert "half a surrogate pair" in twin.error(event)
        assert not twin.error(twin.say().last)
