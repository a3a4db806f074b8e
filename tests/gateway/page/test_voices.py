"""Voices on the page: recorded from a microphone that beeps, or uploaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cosyserve.audio import AudioFormat, encode
from cosyserve.contracts import Recording, Voice
from tests.gateway.page.chromium import Page
from tests.gateway.serving import Running
from tests.gateway.sine_engine import SineEngine, sine

CHOSEN = "document.querySelector('#recorded').textContent === {!r}"
OPEN = "document.querySelector('#voice-dialog').open"


def names(server: Running) -> list[str]:
    return [voice["id"] for voice in server.http.get("/v1/audio/voices").json()["data"]]


def choose(page: Page, file: Path, seconds: float) -> None:
    """As the recording, in the open dialog."""
    file.write_bytes(encode(sine(int(24_000 * seconds)), AudioFormat.WAV))
    document = page.call("DOM.getDocument")["root"]["nodeId"]
    field = page.call("DOM.querySelector", nodeId=document, selector="#recording")["nodeId"]
    page.call("DOM.setFileInputFiles", files=[str(file)], nodeId=field)
    page.wait_for(CHOSEN.format(file.name))


def test_a_recorded_voice_speaks(server: Running, page: Page) -> None:
    heard: list[Recording] = []

    async def embed(recording: Recording) -> Voice:
        heard.append(recording)
        return await SineEngine.embed(server.engine, recording)

    server.engine.embed = embed  # type: ignore[method-assign]
    page.click("#add-voice")
    page.click("#record")
    page.wait_for("/[2-9] s|\\d\\d s/.test(document.querySelector('#record').textContent)")
    page.click("#record")
    page.wait_for("!document.querySelector('#listen').hidden")
    page.click("#said")
    page.type("Beep, beep.")
    page.click("#voice-name")
    page.type("beeper")
    page.click("#save-voice")
    assert page.run(OPEN), "nobody has agreed"
    assert heard == []
    page.click("#consent")
    page.click("#save-voice")
    page.wait_for(f"!{OPEN}")
    (recording,) = heard
    assert recording.seconds > 1
    assert np.abs(recording.samples).max() > 0.1
    assert (recording.name, recording.text) == ("beeper", "Beep, beep.")
    assert recording.consent.startswith("The speaker agrees: ticked on the page, 20")
    assert page.run("document.querySelector('#voice').value") == "beeper"
    page.click("#text")
    page.type("With another voice.")
    page.click("#speak")
    page.wait_for("document.querySelector('#speech-form').dataset.state === 'heard'")
    assert server.engine.requests[0].voice.name == "beeper"
    page.run("window.confirm = () => true")
    page.click("#remove-voice")
    page.wait_for("document.querySelector('#voice').value === 'default'")
    assert names(server) == ["default"]
    del server.engine.embed


def test_an_uploaded_voice(server: Running, page: Page, tmp_path: Path) -> None:
    page.click("#add-voice")
    page.click("#voice-name")
    page.type("ada")
    page.click("#consent")
    page.click("#save-voice")
    assert page.text("#voice-problem") == "Record something, or choose a file."
    for name, seconds in (("short.wav", 0.2), ("ada.wav", 2)):
        choose(page, tmp_path / name, seconds)
        page.click("#save-voice")
        if name == "short.wav":
            page.wait_for("!document.querySelector('#voice-problem').hidden")
            assert page.text("#voice-problem") == "The recording is too short."
            assert page.run(OPEN)
    page.wait_for(f"!{OPEN}")
    assert page.run("document.querySelector('#problem').hidden")
    assert sorted(names(server)) == ["ada", "default"]
    server.http.delete("/v1/audio/voices/ada")


def test_a_text_that_cannot_be_what_is_said(server: Running, page: Page, tmp_path: Path) -> None:
    page.click("#add-voice")
    choose(page, tmp_path / "ada.wav", seconds=2)
    page.click("#said")
    page.type("Much more than anybody says in two seconds. " * 4)
    page.click("#voice-name")
    page.type("ada")
    page.click("#consent")
    page.click("#save-voice")
    page.wait_for(f"!{OPEN} && !document.querySelector('#problem').hidden")
    told = page.text("#problem")
    assert told.startswith("“ada” was added. The text is very much for 2.0 s of speech. If "), told
    assert told.endswith(": correct the text. For that, remove it and add it again."), told
    assert page.run("document.querySelector('#voice').value") == "ada"
    page.run("window.confirm = () => true")
    page.click("#remove-voice")
    page.wait_for("document.querySelector('#problem').hidden")
    page.wait_for("document.querySelector('#voice').value === 'default'")
    assert names(server) == ["default"]


def test_leaving_the_dialog_ends_the_recording(page: Page) -> None:
    page.run(
        """const { mediaDevices } = navigator;
        const ask = mediaDevices.getUserMedia.bind(mediaDevices);
        mediaDevices.getUserMedia = async (wanted) => (window.stream = await ask(wanted))"""
    )
    page.click("#add-voice")
    page.click("#record")
    page.wait_for("window.stream?.active")
    page.press("Escape", 27)
    page.wait_for(f"!{OPEN} && !window.stream.active")
    assert page.run("document.activeElement.id") == "add-voice"
