"""The page of a server with several models: one is chosen, with its voices."""

from __future__ import annotations

from pathlib import Path

from cosyserve.audio import AudioFormat, encode
from tests.gateway.page.chromium import Browser, Page
from tests.gateway.serving import Running, serving
from tests.gateway.sine_engine import sine
from tests.gateway.test_models import ThirdEngine

VOICES = "[...document.querySelector('#voice').options].map((option) => option.value)"


def choose(page: Page, model: str) -> None:
    page.run(
        f"""(() => {{
            const models = document.querySelector("#models");
            models.value = "{model}";
            models.dispatchEvent(new Event("input", {{ bubbles: true }}));
            models.dispatchEvent(new Event("change", {{ bubbles: true }}));
        }})()"""
    )


def add_voice(page: Page, name: str, file: Path) -> None:
    page.click("#add-voice")
    document = page.call("DOM.getDocument")["root"]["nodeId"]
    field = page.call("DOM.querySelector", nodeId=document, selector="#recording")["nodeId"]
    page.call("DOM.setFileInputFiles", files=[str(file)], nodeId=field)
    page.click("#voice-name")
    page.type(name)
    page.click("#consent")
    page.click("#save-voice")
    page.wait_for("!document.querySelector('#voice-dialog').open")


def test_a_model_is_chosen_with_its_voices(browser: Browser, tmp_path: Path) -> None:
    three, file = ThirdEngine(), tmp_path / "ada.wav"
    file.write_bytes(encode(sine(48_000), AudioFormat.WAV))
    with serving(others=[three]) as server, browser.page(server.url) as page:
        page.wait_for(f"{VOICES}.length")
        assert page.text("#models").split() == ["sine", "three"]
        assert page.text("#model") == ""
        assert page.run(VOICES) == ["default"]
        choose(page, "three")
        page.wait_for(f"{VOICES}.includes('own')")
        page.run("document.querySelector('#voice').value = 'own'")
        page.click("#text")
        page.type("With the other model.")
        assert '"model":"three","voice":"own"' in page.text("#snippet")
        page.click("#speak")
        server.wait_until_idle()
        page.wait_for("document.querySelector('#speech-form').dataset.state === 'heard'")
        assert (server.engine.sessions, three.sessions) == (0, 1)
        add_voice(page, "ada", file)
        assert page.run(VOICES) == ["ada", "default", "own"]
        assert (server.engine.embedded, three.embedded) == (0, 1)
        choose(page, "sine")
        page.wait_for(f"!{VOICES}.includes('own')")
        assert page.run("document.querySelector('#voice').value") == "ada", "it stays"
        page.run("location.hash = '#operate'")
        three.ready = False
        page.wait_for("document.querySelector('.bad')?.innerText.includes('three')")
        assert page.faults == []


def test_a_single_model_is_no_choice(server: Running, page: Page) -> None:
    assert page.text("#model") == "sine"
    assert page.run("document.querySelector('#model-choice').hidden")
    assert page.run("document.querySelector('#models').value") == "sine"
