"""Recordings at URLs: only from public addresses, however a URL gets there."""

from __future__ import annotations

import asyncio
import gzip
import ipaddress
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from cosyserve.audio import AudioFormat, encode
from cosyserve.errors import AudioError
from cosyserve.gateway.speech import remote_audio
from cosyserve.gateway.speech.remote_audio import fetch, is_public
from cosyserve.settings import Settings
from tests.gateway.serving import SPEECH, serving
from tests.gateway.sine_engine import sine

RECORDING = encode(sine(24_000), AudioFormat.WAV)


class Site(BaseHTTPRequestHandler):
    hosts: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.hosts.append(self.headers["host"])
        assert self.headers["accept-encoding"] == "identity"
        match self.path:
            case "/me.wav":
                self._answer(200, RECORDING)
            case "/packed":
                self._answer(200, gzip.compress(RECORDING), **{"Content-Encoding": "gzip"})
            case "/moved":
                self._answer(302, b"", Location="/me.wav")
            case "/inside":
                self._answer(302, b"", Location="http://10.0.0.1/secret")
            case "/file":
                self._answer(302, b"", Location="file:///etc/passwd")
            case "/round":
                self._answer(302, b"", Location="/round")
            case _:
                self._answer(404, b"")

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def loopback_is_public(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_audio, "is_public", lambda a: a.is_loopback or is_public(a))


def get(url: str, max_bytes: int = 1 << 20) -> bytes:
    return asyncio.run(fetch(url, max_bytes))


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fec0::1",
        "fd00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
        "2002:a00:1::",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "64:ff9b:1::7f00:1",
        "::127.0.0.1",
        "::ffff:0:127.0.0.1",
        "5f00::1",
        "3fff::1",
        "168.63.129.16",
        "::ffff:168.63.129.16",
    ],
)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_addresses_that_are_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/me.wav",
        "http://localhost:{port}/me.wav",
        "http://2130706433:{port}/me.wav",
        "http://0x7f.1:{port}/me.wav",
        "http://[::ffff:127.0.0.1]:{port}/me.wav",
        "http://nobody@127.0.0.1:{port}/me.wav",
    ],
)
def test_no_way_into_the_own_network(site: int, url: str) -> None:
    Site.hosts.clear()
    with pytest.raises(AudioError, match="not public"):
        get(url.format(port=site))
    assert Site.hosts == []


@pytest.mark.usefixtures("loopback_is_public")
@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("inside", "not public"),
        ("file", r"must be an http\(s\) one"),
        ("round", "3 redirects"),
        ("gone", "answers 404"),
        ("packed", "compressed"),
    ],
)
def test_redirects_lead_nowhere_else(site: int, path: str, fault: str) -> None:
    with pytest.raises(AudioError, match=fault):
        get(f"http://127.0.0.1:{site}/{path}")


@pytest.mark.usefixtures("loopback_is_public")
def test_a_recording_is_bounded_and_follows_a_redirect(site: int) -> None:
    assert get(f"http://127.0.0.1:{site}/moved") == RECORDING
    with pytest.raises(AudioError, match="larger than 1000 bytes"):
        get(f"http://127.0.0.1:{site}/me.wav", 1000)
    assert remote_audio._authorities() is remote_audio._authorities()  # 70 ms each time


def test_the_checked_address_is_the_one_that_is_asked(
    site: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that is public when it is checked and private when it is asked again."""
    answers = iter(["127.0.0.1", "10.0.0.1"])

    async def resolve(self: Any, host: str, port: int, **_: Any) -> list[Any]:
        address = next(answers) if host == "two-faced.example" else host
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "getaddrinfo", resolve)
    monkeypatch.setattr(remote_audio, "is_public", lambda a: a.is_loopback)
    Site.hosts.clear()
    assert get(f"http://two-faced.example:{site}/me.wav") == RECORDING
    assert Site.hosts == [f"two-faced.example:{site}"]


@pytest.mark.usefixtures("loopback_is_public")
def test_a_slow_site_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_audio, "SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(AudioError, match=r"took more|can't be read"):
            get(f"http://127.0.0.1:{port}/me.wav")


@pytest.mark.usefixtures("loopback_is_public")
def test_a_request_speaks_with_the_voice_at_a_url(site: int) -> None:
    with serving(settings=Settings(reference_urls=True)) as server:
        answer = server.say(ref_audio=f"http://127.0.0.1:{site}/me.wav", ref_text="Hum.")
        assert answer.status_code == 200
        assert len(server.engine.requests[0].voice.speech_tokens) == 25


@pytest.mark.usefixtures("loopback_is_public")
def test_a_url_that_can_not_be_read_is_told_by_its_field(site: int) -> None:
    url = f"http://127.0.0.1:{site}/gone"
    with serving(settings=Settings(reference_urls=True)) as server:
        for fields in ({"reference_audio": url}, {"references": [{"audio": url}]}):
            (param,) = fields
            answer = server.say(**fields)
            refused = answer.json()["error"]
            assert answer.status_code == 400
            assert (refused["code"], refused["param"]) == ("invalid_audio", param)
            assert refused["message"].startswith(f"{param}: the URL answers 404")


@pytest.mark.usefixtures("loopback_is_public")
def test_a_url_is_fetched_once_a_batch_and_not_without_consent(site: int) -> None:
    settings = Settings(reference_urls=True, require_consent=True, max_requests=2)
    items = [{"input": "Hello."}] * 6
    with serving(settings=settings) as server:
        for path, succeeded in (("me.wav", 6), ("gone", 0)):
            body = {"items": items, "ref_audio": f"http://127.0.0.1:{site}/{path}"}
            Site.hosts.clear()
            refused = server.http.post(f"{SPEECH}/batch", json=body).json()["results"]
            assert {result["error"]["code"] for result in refused} == {"consent_required"}
            assert Site.hosts == []
            answer = server.http.post(f"{SPEECH}/batch", json=body | {"consent": "Ada agreed."})
            assert answer.json()["succeeded"] == succeeded
            assert len(Site.hosts) == 1
