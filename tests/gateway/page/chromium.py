"""A real Chromium without a window, driven over its DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

PROGRAMS = ("chromium-headless-shell", "chromium", "google-chrome")
PROGRAM = next(filter(None, map(shutil.which, PROGRAMS)), None)
OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # root has none, and only pages of this repository are opened
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--mute-audio",
    "--use-fake-device-for-media-stream",  # a microphone that beeps
    "--use-fake-ui-for-media-stream",  # and somebody who allows it
    "--remote-debugging-port=0",
)
SECONDS = 30.0  # that a page has to become what a test expects


class Browser:
    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._numbers = count(1)
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str = "", **params: Any) -> Any:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        self._socket.send(json.dumps(message))
        while True:
            answer = json.loads(self._socket.recv(timeout=SECONDS))
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self.events.append(answer)

    @contextmanager
    def page(self, url: str, before: str = "", **sizes: Any) -> Iterator[Page]:
        """A page that shares nothing with others; `before` is run ahead of its own scripts."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        page = Page(self, attached["sessionId"])
        for domain in ("Page", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        page.call("Page.addScriptToEvaluateOnNewDocument", source=before)
        page.resize(**sizes)
        page.call("Page.navigate", url=url)
        page.wait_for("document.readyState === 'complete'")
        try:
            yield page
        finally:
            self.call("Target.disposeBrowserContext", browserContextId=context)


class Page:
    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session

    def call(self, method: str, **params: Any) -> Any:
        return self._browser.call(method, self._session, **params)

    def run(self, script: str) -> Any:
        """The value of an expression; a promise is awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, f"{script}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def wait_for(self, condition: str) -> None:
        until = time.monotonic() + SECONDS
        while not self.run(f"Boolean({condition})"):  # an element has no value here
            assert time.monotonic() < until, f"{condition}: never\n{self.text('body')}"
            time.sleep(0.05)

    def text(self, selector: str) -> str:
        return str(self.run(f"document.querySelector({selector!r}).innerText"))

    def click(self, selector: str) -> None:
        """As a person does: what is covered, or not there, is not clicked."""
        x, y = self.run(
            f"""(() => {{
                const element = document.querySelector({selector!r});
                element.scrollIntoView({{block: "center", behavior: "instant"}});
                const {{x, y, width, height}} = element.getBoundingClientRect();
                const top = document.elementFromPoint(x + width / 2, y + height / 2);
                if (!element.contains(top)) throw new Error("covered by " + top?.outerHTML);
                return [x + width / 2, y + height / 2];
            }})()"""
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def press(self, key: str, code: int, modifiers: int = 0) -> None:
        keys = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        if key == "Enter":
            keys["text"] = "\r"
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, **keys)

    def resize(self, width: int = 1000, height: int = 900, scale: float = 1) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=False,
        )

    def prefer(self, scheme: str) -> None:
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def screenshot(self, file: Path) -> None:
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=False)
        file.write_bytes(base64.b64decode(shot["data"]))

    @property
    def faults(self) -> list[str]:
        """What the browser's console complains of: exceptions, files not found, broken policies."""
        self.run("0")  # so that what was said before has come
        texts = []
        for event in self._browser.events:
            if event.get("sessionId") != self._session:
                continue
            if event["method"] == "Runtime.exceptionThrown":
                details = event["params"]["exceptionDetails"]
                texts.append(details.get("exception", {}).get("description", details["text"]))
            if event["method"] == "Log.entryAdded":
                texts.append(event["params"]["entry"]["text"])
        return texts


@contextmanager
def chromium() -> Iterator[Browser]:
    assert PROGRAM
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [PROGRAM, *OPTIONS, f"--user-data-dir={profile}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Debian's program is a script that starts the browser
        )
        try:
            port, path = _address(Path(profile) / "DevToolsActivePort", process)
            with connect(f"ws://127.0.0.1:{port}{path}", max_size=None) as socket:
                browser = Browser(socket)
                yield browser
                browser.call("Browser.close")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=SECONDS)


def _address(file: Path, process: subprocess.Popen[bytes]) -> list[str]:
    until = time.monotonic() + 3 * SECONDS
    while not file.exists() or len(file.read_text().split()) < 2:
        assert process.poll() is None, f"{PROGRAM} ended with {process.returncode}"
        assert time.monotonic() < until, f"{PROGRAM} doesn't listen"
        time.sleep(0.02)
    return file.read_text().split()
