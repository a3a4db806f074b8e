"""TLS, and whose word on a client's address is taken."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

from cosyserve.errors import InputError
from cosyserve.gateway.transport.listening import Transport, listen
from cosyserve.settings import Settings
from tests.gateway.serving import serving
from tests.gateway.talking import OVER, STREAM
from tests.waiting import PATIENCE


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate of our own for 127.0.0.1, and its key."""
    if not shutil.which("openssl"):
        pytest.skip("there is no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    files = str(folder / "cert.pem"), str(folder / "key.pem")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=test"),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-out", files[0], "-keyout", files[1]),
        ],
        check=True,
        capture_output=True,
    )
    return files


def test_speech_over_tls(certificate: tuple[str, str]) -> None:
    certfile, keyfile = certificate
    with serving(settings=Settings(ssl_certfile=certfile, ssl_keyfile=keyfile)) as server:
        assert server.url.startswith("https://")
        assert server.say(response_format="pcm").content
        trusting = ssl.create_default_context(cafile=certfile)
        assert asyncio.run(said(server.url, trusting))[-1]["type"] == "done"


async def said(url: str, trusting: ssl.SSLContext) -> list[dict[str, Any]]:
    """Events of a text. All in one thread: the client of other tests has two, which use a TLS
    connection at once, and Python 3.11 does not guard it."""
    events = []
    address = url.replace("http", "ws", 1) + STREAM
    async with connect(address, ssl=trusting) as socket, asyncio.timeout(PATIENCE):
        for message in (
            {"type": "start", "model": "tts-1", "response_format": "pcm"},
            {"type": "text", "text": "Hello."},
            {"type": "end"},
        ):
            await socket.send(json.dumps(message))
        while not events or events[-1]["type"] not in OVER:
            message = await socket.recv()
            if isinstance(message, str):
                events.append(json.loads(message))
    return events


def test_a_key_in_the_certificates_file(certificate: tuple[str, str], tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_text("".join(Path(file).read_text("utf-8") for file in certificate), "utf-8")
    assert Transport.of(Settings(ssl_certfile=str(both))).certfile == str(both)


def test_what_is_no_certificate_is_known_at_the_start(
    certificate: tuple[str, str], tmp_path: Path
) -> None:
    certfile, keyfile = certificate
    for settings, complaint in (
        (Settings(ssl_certfile=str(tmp_path / "none")), "No such file"),
        (Settings(ssl_certfile=certfile), "no TLS with the certificate"),
        (Settings(ssl_certfile=keyfile, ssl_keyfile=certfile), "no TLS with the certificate"),
        (Settings(ssl_keyfile=keyfile), "give --ssl-certfile, too"),
    ):
        with pytest.raises(InputError, match=complaint):
            Transport.of(settings)


@pytest.mark.parametrize(
    ("trusted", "address"),
    [
        ("127.0.0.1", "9.8.7.6"),
        ("127.0.0.0/8, 9.8.7.6", "1.2.3.4"),  # the nearest that is no proxy
        ("*", "1.2.3.4"),
        ("10.0.0.0/8", "127.0.0.1"),
        ("", "127.0.0.1"),
    ],
)
def test_the_address_of_a_client(
    trusted: str, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "cosyserve")
    with serving(settings=Settings(trusted_proxies=trusted)) as server:
        server.http.get("/v1/models", headers={"X-Forwarded-For": "1.2.3.4, 9.8.7.6"})
    assert json.loads(caplog.messages[-1])["client"] == address


def test_what_is_no_proxy() -> None:
    with pytest.raises(InputError, match=r"--trusted-proxies: .*nginx"):
        Settings.read(trusted_proxies="127.0.0.1,nginx")


@pytest.mark.parametrize("host", ["300.1.1.1", "192.0.2.1"])
def test_an_address_that_is_not_ours_is_named(host: str) -> None:
    with pytest.raises(InputError, match=rf"can't listen on {host} port 0: .*with --host$"):
        listen(host, 0, 1.0)
