"""The page's files: where they are, what they may load, how they are kept."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

from cosyserve.gateway.page import routes
from cosyserve.gateway.voices.routes import VoiceDetails
from tests.gateway.serving import Running, serving

FOLDER = Path(str(files("cosyserve.gateway.page").joinpath("files")))
NAMES = sorted(file.relative_to(FOLDER).as_posix() for file in FOLDER.rglob("*.*"))
SPACE_OR_COMMENT = re.compile(r"//www\.w3\.org|(^|\s)// .*", re.MULTILINE)
IMPORT = re.compile(r'^import \{ (.*) \} from "(.*)";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?:async )?(?:function\*?|class|const) (\w+)", re.MULTILINE)


@pytest.mark.parametrize("path", ["/", *(f"/page/{name}" for name in NAMES)])
def test_a_file_is_kept_until_it_changes(server: Running, path: str) -> None:
    first = server.http.get(path)
    assert first.status_code == 200
    assert first.headers["cache-control"] == "no-cache"
    assert first.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in first.headers["content-security-policy"]
    assert "unsafe" not in first.headers["content-security-policy"]
    tag = first.headers["etag"]
    again = server.http.get(path, headers={"If-None-Match": f'"other", W/{tag}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert server.http.get(path, headers={"If-None-Match": '"other"'}).status_code == 200
    head = server.http.head(path)
    assert (head.content, head.headers["content-length"]) == (b"", str(len(first.content)))


def test_kinds(server: Running) -> None:
    kinds = {"/": "text/html", "/page/app.js": "text/javascript", "/page/style.css": "text/css"}
    for path, kind in kinds.items():
        assert server.http.get(path).headers["content-type"] == f"{kind}; charset=utf-8"


@pytest.mark.parametrize("name", ["other.js", "../__init__.py", "%2e%2e/routes.py", ""])
def test_only_its_files_are_served(server: Running, name: str) -> None:
    answer = server.http.get(f"/page/{name}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


def test_it_is_small_and_needs_nothing_from_elsewhere() -> None:
    texts = {name: (FOLDER / name).read_text("utf-8") for name in NAMES}
    assert sum(len(text.encode()) for text in texts.values()) < 61_440
    for name, text in texts.items():
        assert "//" not in SPACE_OR_COMMENT.sub("", text), name  # no other host
    html = texts["index.html"]
    for path in re.findall(r'(?:src|href)="page/(.*?)"', html):
        assert path in texts
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?! type=\"module\" src=)", html)


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".js")])
def test_what_a_script_names_is_there(name: str) -> None:
    """Names of other scripts, ids of elements: a browser finds a wrong one when it is used."""
    text = (FOLDER / name).read_text("utf-8")
    for imported, target in IMPORT.findall(text):
        other = (FOLDER / name).parent.joinpath(target).read_text("utf-8")
        assert set(imported.split(", ")) <= set(EXPORT.findall(other)), target
    ids = set(re.findall(r'\sid="(.*?)"', (FOLDER / "index.html").read_text("utf-8")))
    assert set(re.findall(r'\bby\("(.*?)"\)', text)) <= ids


def test_the_warning_of_a_new_voice_is_shown() -> None:
    text = (FOLDER / "speak" / "voices.js").read_text("utf-8")
    assert '{ warning } = await askJson("v1/audio/voices", { method: "POST"' in text
    assert "sentence(warning)" in text
    assert "warning" in VoiceDetails.model_fields


def test_every_file_is_used() -> None:
    texts = {name: (FOLDER / name).read_text("utf-8") for name in NAMES}
    for name in set(NAMES) - {"index.html"}:
        last = name.rpartition("/")[2]
        assert any(f"/{last}" in text for other, text in texts.items() if other != name), name


def test_files_of_other_kinds_are_passed_over(tmp_path: Path) -> None:
    for name in ("index.html", "index.html~", ".DS_Store", "README"):
        (tmp_path / name).write_text(name)
    assert [name for name, _ in routes._read(tmp_path)] == ["index.html"]


def test_it_opens_without_a_key_and_asks_for_one() -> None:
    with serving(keys=["secret"]) as server:
        assert server.http.get("/").status_code == 200
        assert server.http.get("/page/app.js").status_code == 200
        assert server.http.get("/v1/models").status_code == 401
        assert server.http.get("/page").status_code == 401
