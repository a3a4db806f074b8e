"""Lexicons and SSML as clients send them; what engines make of them is tested there."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from cosyserve.errors import InputError
from cosyserve.gateway.policy import Policy
from cosyserve.settings import Settings
from tests.gateway.serving import SPEECH, Running, serving
from tests.gateway.talking import talking

SSML = "<speak>Wait.<break time='1s'/>Now.</speak>"


def test_a_lexicon_of_a_request(server: Running) -> None:
    assert server.say(input="Hi.", lexicon={"nginx": "engine x"}).status_code == 200
    form = {"input": (None, "Hi."), "lexicon": (None, json.dumps({"nginx": "engine x"}))}
    assert httpx.post(server.url + SPEECH, files=form).status_code == 200
    with talking(server.url) as talk:
        talk.say("Hi.", lexicon={"nginx": "engine x"})
    assert [r.lexicon for r in server.engine.requests] == [{"nginx": "engine x"}] * 3


@pytest.mark.parametrize("lexicon", [["nginx"], {"nginx": 1}, "nginx", '{"nginx": 1}'])
def test_what_is_no_lexicon_is_refused(server: Running, lexicon: object) -> None:
    answer = server.say(input="Hi.", lexicon=lexicon)
    assert answer.status_code == 400
    assert "lexicon" in answer.json()["error"]["param"]


def test_what_an_engine_can_not_say_is_refused(server: Running) -> None:
    server.behave(error=InputError("'nginx' is given in ARPAbet"))
    answer = server.say(input="Hi.", lexicon={"nginx": "/x/"})
    assert (answer.status_code, answer.json()["error"]["message"]) == (
        400,
        "'nginx' is given in ARPAbet",
    )


def test_a_lexicon_of_the_server(tmp_path: Path) -> None:
    file = tmp_path / "lexicon.json"
    file.write_text('{"nginx": "engine x", "SQL": "sequel"}', "utf-8")
    with serving(settings=Settings(lexicon=str(file))) as running:
        running.say(input="Hi.", lexicon={"SQL": "S Q L"})
        (request,) = running.engine.requests
    assert request.lexicon == {"nginx": "engine x", "SQL": "S Q L"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "can't be read"),
        ("{", "not JSON"),
        ('{"a": 1}', "write a lexicon as"),
        ('{"a": "/qq/"}', "'q' in IPA"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, content: str | None, message: str) -> None:
    file = tmp_path / "lexicon.json"
    if content is not None:
        file.write_text(content, "utf-8")
    with pytest.raises(InputError, match=f"lexicon.json.*{message}"):
        Policy.of(Settings(lexicon=str(file)))


def test_ssml_in_pieces_is_handed_on_whole(server: Running) -> None:
    with talking(server.url) as talk:
        talk.say(*SSML)
        talk.say("<", "spice")
        talk.say("<sp")
    whole, *arriving = [request.text for request in server.engine.requests]
    assert whole == SSML
    assert not any(isinstance(text, str) for text in arriving)
    assert server.engine.texts == [SSML, "<spice", "<sp"]
