"""Bodies that can't be read are refused alike, whoever was to read them."""

from __future__ import annotations

import pytest

from tests.gateway.serving import SPEECH, Running
from tests.gateway.test_errors import check_envelope

FIELD = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\nb\r\n'
UNREADABLE = {
    "no boundary": ("multipart/form-data", b"x"),
    "another boundary": ("multipart/form-data; boundary=x", b"--y\r\n"),
    "too many fields": ("multipart/form-data; boundary=x", FIELD * 1001 + b"--x--\r\n"),
    "too large a part": (
        "multipart/form-data; boundary=x",
        FIELD.removesuffix(b"\r\n") + b"b" * (1 << 20) + b"\r\n--x--\r\n",
    ),
}


@pytest.mark.parametrize("fault", UNREADABLE)
@pytest.mark.parametrize("path", [SPEECH, "/v1/audio/voices", "/v1/audio/voice_consents"])
def test_forms_that_can_not_be_read(server: Running, path: str, fault: str) -> None:
    kind, body = UNREADABLE[fault]
    answer = server.http.post(path, content=body, headers={"content-type": kind})
    check_envelope(answer, 400, "invalid_form")


@pytest.mark.parametrize("body", [b"{", b"\xff", b'{"items": ' + b"1" * 5000 + b"}"])
@pytest.mark.parametrize("path", [SPEECH, f"{SPEECH}/batch", "/v2/models/cosyvoice2/infer"])
def test_json_that_can_not_be_read(server: Running, path: str, body: bytes) -> None:
    answer = server.http.post(path, content=body, headers={"content-type": "application/json"})
    check_envelope(answer, 400, "invalid_json")
