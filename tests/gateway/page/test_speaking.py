"""The page in a real browser: from typing to hearing, and whatever stops it between."""

from __future__ import annotations

import json
import subprocess
import time
from itertools import pairwise
from pathlib import Path

import pytest

from cosyserve.audio import AudioFormat, decode
from cosyserve.errors import OverloadError, WorkerError
from tests import waiting
from tests.gateway.page.chromium import Browser, Page
from tests.gateway.serving import Running, serving
from tests.gateway.sine_engine import SineEngine

STATE = "document.querySelector('#speech-form').dataset.state"
CTRL = 2


def write(page: Page, text: str, field: str = "#text") -> None:
    page.click(field)
    page.type(text)


def wait_until(page: Page, state: str) -> None:
    page.wait_for(f"{STATE} === '{state}'")


def test_it_is_heard_while_it_is_made(server: Running, page: Page) -> None:
    server.behave(held=True, chunk_tokens=12)
    write(page, "One word after the other.")
    page.click("#speak")
    wait_until(page, "heard")
    assert server.engine.open_sessions == 1  # three chunks are still to be made
    (first,) = page.run("window.scheduled")
    assert first["seconds"] == pytest.approx(0.48)
    assert first["peak"] == pytest.approx(0.5, abs=0.01)
    assert page.text("#first-audio").endswith(" ms")
    assert page.text("#length") == "0.5 s …"
    assert page.text("#speak") == "Stop"
    server.engine.held = False
    wait_until(page, "idle")
    assert page.text("#status") == "Spoken: 1.9 s."
    assert page.text("#played") == page.text("#length") == "1.9 s"
    heard = page.run("window.scheduled")
    assert sum(piece["seconds"] for piece in heard) == pytest.approx(1.92)
    for before, after in pairwise(heard[1:]):  # behind the pause, seamless
        assert after["at"] == pytest.approx(before["at"] + before["seconds"], abs=1e-9)
    assert page.run("document.querySelector('#mirror').textContent") == ""
    assert server.engine.requests[0].text == "One word after the other."


def test_words_are_found_in_the_text_in_their_order(page: Page) -> None:
    text = "\n no, 你 no not."
    told = {"words": ["no,", "你", "other", "no", "not."], "start": [0, 1, 2, 3, 4]}
    told["end"] = [1, 2, 3, 4, 5]
    call = f"m.placed({json.dumps(told)}, {json.dumps(text)}, undefined)"
    words = page.run(f"import('/page/speak/words.js').then((m) => {call})")
    assert [text[word["from"] : word["to"]] for word in words] == ["no,", "你", "no", "not."]
    assert [word["start"] for word in words] == [0, 1, 3, 4]
    assert [word["from"] for word in words] == [2, 6, 8, 11]


def test_cancelling_stops_the_server(server: Running, page: Page) -> None:
    server.behave(held=True)
    write(page, "This is never said to its end.")
    page.press("Enter", 13, CTRL)
    wait_until(page, "heard")
    page.press("Escape", 27)
    wait_until(page, "idle")
    assert page.text("#status") == "Stopped."
    server.wait_until_idle()
    assert server.engine.made == 1
    assert page.run("document.querySelector('#problem').hidden")
    page.click("#speak")  # and again, with the button
    wait_until(page, "heard")
    page.click("#speak")
    wait_until(page, "idle")
    server.wait_until_idle()


def test_a_pause_is_a_pause(server: Running, page: Page) -> None:
    server.behave(chunk_tokens=250)
    write(page, "A long story.")
    page.click("#speak")
    wait_until(page, "heard")
    page.click("#pause")
    page.wait_for("document.querySelector('#pause').textContent === 'Resume'")
    time.sleep(0.3)  # until sound that is on its way has been heard
    played = page.text("#played")
    time.sleep(0.5)
    assert page.text("#played") == played
    page.click("#pause")
    page.wait_for(f"document.querySelector('#played').textContent !== '{played}'")
    page.click("#speak")


def test_what_is_asked_for_is_what_the_form_says(server: Running, page: Page) -> None:
    page.click("#examples button")
    write(page, "Softly.", "#instructions")
    page.run("document.querySelector('#speed').focus()")
    page.press("ArrowRight", 39)
    page.run("document.querySelector('#seed').select()")
    page.type("7")
    page.click("#speak")
    wait_until(page, "heard")
    (request,) = server.engine.requests
    assert request.text.startswith("Good morning.")
    assert (request.instruction, request.speed, request.seed) == ("Softly.", 1.04, 7)
    page.click("#another-seed")
    assert page.run("document.querySelector('#seed').value") != "7"


def test_an_error_is_shown_in_the_servers_words(server: Running, page: Page) -> None:
    write(page, "Hello.")
    full, died = OverloadError("the queue is full", 3), WorkerError("a worker died")
    for message, behaviour in {
        "The queue is full. Try again in 3 s.": {"error": full},
        "A worker died.": {"error": died, "error_at": 2},  # after some audio
    }.items():
        server.behave(**behaviour)
        page.click("#speak")
        page.wait_for("!document.querySelector('#problem').hidden")
        assert page.text("#problem") == message
        wait_until(page, "idle")
        server.behave()
        page.click("#speak")  # nothing of it is left
        wait_until(page, "heard")
        assert page.run("document.querySelector('#problem').hidden")
        page.click("#speak")


def test_nothing_is_not_asked_for(server: Running, page: Page) -> None:
    page.click("#speak")
    assert page.text("#problem") == "There is nothing to say yet."
    assert page.run("document.activeElement.id") == "text"
    assert server.engine.requests == []


def test_downloads_in_many_formats(server: Running, page: Page, tmp_path: Path) -> None:
    write(page, "For later.")
    page.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    formats = set(AudioFormat) - {AudioFormat.F32, AudioFormat.ALAW}
    for audio_format in formats:
        page.click(f"#downloads [aria-label='Download as {audio_format}']")
        page.wait_for("document.querySelector('#download-status').textContent.endsWith('saved.')")
        name = page.text("#download-status").split()[0]
        waiting.wait_until(lambda name=name: (tmp_path / name).exists())  # type: ignore[misc]
        page.run("document.querySelector('#download-status').textContent = ''")
        if audio_format not in (AudioFormat.PCM, AudioFormat.MULAW):
            assert len(decode(tmp_path / name).samples) > 24_000
    assert len(list(tmp_path.iterdir())) == len(formats)


def test_the_snippets_do_what_the_page_does(server: Running, page: Page, tmp_path: Path) -> None:
    text = 'It\'s "quoted" \\ $HOME `x`\nand 中文.'
    write(page, text)
    page.run("document.querySelector('#seed').select()")
    page.type("5")
    subprocess.run(["bash", "-c", page.text("#snippet")], cwd=tmp_path, check=True, timeout=60)
    assert decode(tmp_path / "speech.mp3").rate == 24_000
    page.click("[data-language=python]")
    snippet = page.text("#snippet").replace("speech.mp3", str(tmp_path / "other.mp3"))
    exec(snippet, {})
    assert (tmp_path / "other.mp3").read_bytes() == (tmp_path / "speech.mp3").read_bytes()
    curl, python = server.engine.requests
    assert (curl.text, curl.seed) == (python.text, python.seed) == (text, 5)


def test_a_key_is_asked_for_and_never_shown(browser: Browser) -> None:
    with serving(SineEngine(), keys=["a secret"]) as server, browser.page(server.url) as page:
        page.wait_for("!document.querySelector('#key-form').hidden")
        assert page.run("document.activeElement.id") == "key"
        page.type("wrong")
        page.press("Enter", 13)
        page.wait_for("document.querySelector('#key-form').innerText.includes('know this key')")
        page.run("document.querySelector('#key').value = ''")
        page.type("a secret")
        page.press("Enter", 13)
        page.wait_for("document.querySelector('#key-form').hidden")
        page.wait_for("document.querySelector('#voice').options.length")
        write(page, "Hello.")
        assert "Bearer $COSYSERVE_KEY" in page.text("#snippet")
        assert "a secret" not in page.run("document.documentElement.outerHTML")
        page.click("#speak")
        wait_until(page, "heard")
        page.click("nav a[href='#operate']")
        page.wait_for("document.querySelector('.figure')")
        assert page.run("localStorage.length + document.cookie.length") == 0
