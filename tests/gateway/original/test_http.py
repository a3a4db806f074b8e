"""The original's FastAPI runtime: forms with GET and POST, bare samples back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from cosyserve.audio import AudioFormat, encode
from cosyserve.contracts import Mode
from cosyserve.errors import CosyError, OverloadError
from tests.gateway.serving import Running, serving
from tests.gateway.sine_engine import sine, voice_of

RECORDING = encode(sine(48_000), AudioFormat.WAV)
TEXT = "你好。"


@pytest.fixture(scope="module")
def shared_legacy() -> Iterator[Running]:
    with serving(legacy=True) as running:
        yield running


@pytest.fixture
def legacy(shared_legacy: Running) -> Running:
    shared_legacy.wait_until_idle()
    shared_legacy.behave()
    return shared_legacy


def ask(
    server: Running, mode: str, *, method: str = "GET", wav: bytes | None = None, **fields: str
) -> httpx.Response:
    """As the original's client does: a form, and the recording as a file without a suffix."""
    files: Any = [("prompt_wav", ("prompt_wav", wav, "application/octet-stream"))] if wav else None
    data = {"tts_text": TEXT, **fields}
    return server.http.request(method, f"/inference_{mode}", data=data, files=files)


ASKED: dict[str, tuple[dict[str, Any], Mode, str]] = {
    "sft": ({"spk_id": "中文女"}, Mode.PRESET, ""),
    "zero_shot": ({"prompt_text": "希望。", "wav": RECORDING}, Mode.ZERO_SHOT, ""),
    "cross_lingual": ({"wav": RECORDING}, Mode.CROSS_LINGUAL, ""),
    "instruct": ({"spk_id": "default", "instruct_text": "Fight!"}, Mode.INSTRUCT, "Fight!"),
    "instruct2": (
        {"instruct_text": "用四川话说<|endofprompt|>", "wav": RECORDING},
        *(Mode.INSTRUCT, "用四川话说<|endofprompt|>"),
    ),
}


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("mode", ASKED)
def test_every_mode(legacy: Running, mode: str, method: str) -> None:
    fields, expected, instruction = ASKED[mode]
    answer = ask(legacy, mode, method=method, **fields)
    assert answer.status_code == 200, answer.text
    assert answer.content == encode(legacy.engine.samples, AudioFormat.PCM)
    (request,) = legacy.engine.requests
    assert (request.text, request.mode, request.instruction) == (TEXT, expected, instruction)
    assert request.voice.prompt_text == fields.get("prompt_text", "")
    assert len(request.voice.speech_tokens) == (50 if "wav" in fields else 0)


def test_a_speaker_of_the_original_is_the_models_own_where_it_has_one(legacy: Running) -> None:
    legacy.engine.voices = {"default": voice_of(0), "中文女": voice_of(3)}
    for speaker in ("中文女", "中文男"):
        assert ask(legacy, "sft", spk_id=speaker).status_code == 200
    assert [len(request.voice.speech_tokens) for request in legacy.engine.requests] == [3, 0]


def test_audio_comes_inside_a_sentence(legacy: Running) -> None:
    legacy.behave(held=True)
    form = {"tts_text": TEXT, "spk_id": "default"}
    request = legacy.http.build_request("GET", "/inference_sft", data=form)
    answer = legacy.http.send(request, stream=True)
    pieces = answer.iter_raw()
    first = next(pieces)
    assert 0 < len(first) < 2 * len(legacy.engine.samples)
    legacy.engine.held = False
    assert first + b"".join(pieces) == encode(legacy.engine.samples, AudioFormat.PCM)


def test_who_leaves_frees_the_session(legacy: Running) -> None:
    legacy.behave(held=True)
    request = legacy.http.build_request(
        "GET", "/inference_sft", data={"tts_text": TEXT, "spk_id": "default"}
    )
    answer = legacy.http.send(request, stream=True)
    pieces = answer.iter_raw()  # kept: a generator that nobody has closes the connection
    next(pieces)
    assert legacy.engine.open_sessions == 1
    answer.close()
    legacy.wait_until_idle()


REFUSED: list[tuple[str, dict[str, Any], int, str]] = [
    ("sft", {}, 400, "spk_id"),
    ("sft", {"spk_id": "nobody"}, 404, "voice"),
    ("sft", {"spk_id": "default", "tts_text": " "}, 400, "tts_text"),
    ("sft", {"spk_id": "default", "tts_text": "x" * 4097}, 400, "tts_text"),
    ("zero_shot", {"prompt_text": "Hum."}, 400, "prompt_wav"),
    ("zero_shot", {"prompt_text": "x" * 4097, "wav": RECORDING}, 400, "prompt_text"),
    ("cross_lingual", {"wav": b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0"}, 400, ""),
    ("cross_lingual", {"wav": RECORDING[:44]}, 400, ""),
    ("cross_lingual", {"wav": encode(sine(31 * 24_000), AudioFormat.WAV)}, 400, ""),
    ("instruct", {"spk_id": "default", "instruct_text": " "}, 400, "instruct_text"),
    ("instruct2", {"wav": RECORDING}, 400, "instruct_text"),
]


@pytest.mark.parametrize(("mode", "fields", "status", "param"), REFUSED, ids=range(len(REFUSED)))
def test_bad_input_is_a_clear_error(
    legacy: Running, mode: str, fields: dict[str, Any], status: int, param: str
) -> None:
    answer = ask(legacy, mode, **fields)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"] or "") == (status, param), error
    assert not legacy.engine.requests


def test_overload_and_failure(legacy: Running) -> None:
    legacy.behave(error=OverloadError("full", 2))
    answer = ask(legacy, "sft", spk_id="default")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")
    legacy.behave(error=CosyError("worn out"), error_at=1)
    with pytest.raises(httpx.RemoteProtocolError):  # half a speech never looks like a whole one
        ask(legacy, "sft", spk_id="default")


def test_it_is_closed_by_default_and_wants_a_key_where_others_do(server: Running) -> None:
    assert ask(server, "sft", spk_id="default").status_code == 404
    with serving(legacy=True, keys=["a-key"]) as guarded:
        assert ask(guarded, "sft", spk_id="default").status_code == 401
        guarded.http.headers["Authorization"] = "Bearer a-key"
        assert ask(guarded, "sft", spk_id="default").status_code == 200
