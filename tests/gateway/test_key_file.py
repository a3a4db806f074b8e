"""Keys in a file: names in the log, never keys; changes hold without a new start."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from cosyserve.errors import InputError
from cosyserve.gateway import key_file
from cosyserve.gateway.errors import Refusal
from cosyserve.gateway.key_file import KeyFile
from cosyserve.gateway.keys import KeyRing
from cosyserve.settings import Settings
from tests.gateway.serving import serving
from tests.gateway.talking import talking


@pytest.fixture(autouse=True)
def looks_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_file, "CHECK_SECONDS", 0.0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "keys"
    file.write_text("# ours\nann=secret-of-ann\n\n bob = secret=of=bob \n", "utf-8")
    return file


def test_names_and_keys(file: Path) -> None:
    ring = KeyRing(["plain"], KeyFile(str(file)))
    names = [ring.name(key) for key in (b"plain", b"secret-of-ann", b"secret=of=bob")]
    assert names == ["key 0", "ann", "bob"]
    assert "ann" in ring
    for key in (None, b"", b"secret", b"ann"):
        with pytest.raises(Refusal, match="a valid key is needed"):
            ring.name(key)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("ann=a\njust-a-key\n", "line 2: write NAME=KEY"),
        ("ann=\n", "line 1: write NAME=KEY"),
        ("=key\n", "line 1: write NAME=KEY"),
        ("ann=a\nann=b\n", "line 2: 'ann' has a key already"),
        ("# nothing\n", "holds no key"),
    ],
)
def test_a_file_that_makes_no_sense(file: Path, text: str, complaint: str) -> None:
    file.write_text(text, "utf-8")
    with pytest.raises(InputError, match=complaint) as error:
        KeyFile(str(file))
    assert "just-a-key" not in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't be read"):
        KeyFile(str(tmp_path / "nowhere"))


def test_changes_hold_and_broken_files_do_not(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    keys = KeyFile(str(file))
    file.write_text("carl=c\n", "utf-8")
    assert keys.keys() == {"carl": "c"}
    file.write_text("no key at all\n", "utf-8")
    assert keys.keys() == {"carl": "c"}
    assert keys.keys() == {"carl": "c"}
    file.unlink()
    assert keys.keys() == {"carl": "c"}
    complaints = [line for line in caplog.messages if "the keys are those of before" in line]
    assert len(complaints) == 2  # once for each change
    file.write_text("dora=d\n", "utf-8")
    assert keys.keys() == {"dora": "d"}


def test_a_key_comes_and_goes_while_the_server_runs(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "cosyserve")
    with serving(settings=Settings(api_keys_file=str(file))) as server:
        ann = {"Authorization": "Bearer secret-of-ann"}
        assert server.say().status_code == 401
        server.http.headers.update(ann)
        assert server.say().status_code == 200
        with talking(server.url, additional_headers=ann) as talk:
            assert talk.say().last["type"] == "done"
            file.write_text("bob=b\n", "utf-8")
            assert server.say().status_code == 401
            talk.start()
            talk.text("Hello.")
            assert talk.error()["code"] == "invalid_api_key"  # its connection was open before
        server.http.headers["Authorization"] = "Bearer b"
        assert server.say().status_code == 200
    assert '"client": "ann"' in caplog.text
    assert "secret" not in caplog.text
