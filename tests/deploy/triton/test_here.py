"""`cosyserve serve --triton`: every setting in its place, all started in one go, and all ended."""

from __future__ import annotations

import base64
import re
import subprocess
from pathlib import Path

import httpx
import pytest

from cosyserve.audio import AudioFormat, encode
from cosyserve.checkpoints.prepare import prepare
from cosyserve.deploy.triton.here import (
    OF_AN_LLM_SERVER,
    OF_THE_GATEWAY,
    PASSED,
    REFUSED,
    settings_here,
    triton_here,
)
from cosyserve.deploy.triton.models import streaming_model
from cosyserve.deploy.triton.settings import TritonSettings
from cosyserve.errors import InputError
from cosyserve.settings import Settings
from tests.gateway.original.test_kserve import RECORDING
from tests.gateway.original.test_kserve import body as client_http
from tests.serving import served

ONE = [("auto", "")]
VALUES = {  # other than the defaults
    "dtype": "float32",
    "profile": "throughput",
    "engine": "triton://a:1",
    "max_connections": "1023",
    "gpu_memory": "12GiB",
    "voice_aliases": "alloy=ada",
    **dict.fromkeys(("strict_fields", "reference_urls", "require_consent"), "1"),
    "trim_leading_silence": "1",
    "watermark_key": "a key of the mark",
    "trusted_proxies": "10.0.0.0/8",
    **dict.fromkeys(("model", "home", "voice_store", "default_voice", "host", "api_keys"), "x"),
    **dict.fromkeys(("device", "lm_device", "token2wav_device"), "cuda:1"),
    **dict.fromkeys(("llm_temperature", "llm_top_p", "llm_repetition_penalty"), "0.5"),
    **dict.fromkeys(("llm_model", "llm_api_key"), "x"),
    "llm_url": "http://other/v1",
    "llm_prompt": "chat",
    "flow_backend": "onnxruntime",
    "kernels": "small",
}


def test_every_setting_is_passed_or_the_gateways_or_refused() -> None:
    names = [*PASSED, *OF_AN_LLM_SERVER, *OF_THE_GATEWAY, *REFUSED]
    assert sorted(names) == sorted(Settings.model_fields)
    assert {*PASSED.values(), *OF_AN_LLM_SERVER} <= TritonSettings.model_fields.keys()


@pytest.mark.parametrize("name", Settings.model_fields)
@pytest.mark.parametrize("place", ["option", "variable"])
def test_no_setting_is_ignored(name: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COSYSERVE_MODEL", raising=False)
    if name in OF_AN_LLM_SERVER:
        monkeypatch.setenv("COSYSERVE_LLM_URL", "http://one/v1")
    plain = settings_here(Settings.read(), ONE)
    value = VALUES.get(name, "1024")
    if place == "option":
        settings = Settings.read(**{name: value})
    else:
        monkeypatch.setenv(f"COSYSERVE_{name.upper()}", value)
        settings = Settings.read()
    # as `server.worker_options` says
    devices = [(settings.lm_device or settings.device, settings.token2wav_device)]
    if name in REFUSED:
        shown = f"--{name.replace('_', '-')}" if place == "option" else f"COSYSERVE_{name.upper()}"
        with pytest.raises(InputError, match=f"^{shown} is not for --triton"):
            settings_here(settings, devices)
        return
    found = settings_here(settings, devices)
    changed = {key for key in plain.model_dump() if getattr(found, key) != getattr(plain, key)}
    passed = PASSED | {name: name for name in OF_AN_LLM_SERVER}
    assert changed == ({passed[name]} if name in passed else set())
    if name in passed:
        assert value in str(getattr(found, passed[name]))


def test_defaults_that_mean_the_same_stay_the_repositorys() -> None:
    settings = Settings.read(model="m", slots=0, profile="latency", max_wait_seconds=1.0)
    assert settings_here(settings, ONE).slots == TritonSettings().slots
    assert settings_here(Settings.read(slots=3), ONE, ["slots=5"]).slots == 5


def test_several_devices_are_several_servers() -> None:
    with pytest.raises(InputError, match=r"deploy start.*--engine"):
        settings_here(Settings.read(), [("cpu", ""), ("cuda", "")])


def descendants(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    children = [int(line) for line in found.stdout.split()]
    return children + [below for child in children for below in descendants(child)]


@pytest.mark.parametrize(
    ("names", "streaming"),
    [
        (["cosyvoice2", "cosyvoice2_offline", "token2wav"], "cosyvoice2"),
        (["cosyvoice2", "cosyvoice2_streaming", "token2wav"], "cosyvoice2_streaming"),
        (["cosyvoice2_dit", "cosyvoice2_dit_offline", "token2wav_dit"], "cosyvoice2_dit"),
        (["cosyvoice2_dit", "cosyvoice2_dit_streaming"], "cosyvoice2_dit_streaming"),
    ],
)
def test_the_gateway_asks_for_the_model_that_streams(names: list[str], streaming: str) -> None:
    assert streaming_model(names) == streaming


def test_a_server_that_has_the_lm_alone_is_refused() -> None:
    settings = TritonSettings.of(["role=lm"], model_dir="test")
    with pytest.raises(InputError, match="role=lm"), triton_here(settings):
        pass


def test_one_command_serves_through_triton_and_ends(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    hugging_face_lm_folder: Path,
    token2wav_folder: Path,
) -> None:
    """Of a DiT model, in a repository whose main model does not stream."""
    model = tmp_path / "dit"
    prepare([str(hugging_face_lm_folder), str(token2wav_folder)], model, None, progress=False)
    knobs = [word for pair in ("slots=2", "decoupled_mode=false") for word in ("--set", pair)]
    with served(tmp_path, "--triton", "--model", str(model), *knobs) as (url, process):
        said = re.search(r"tritonserver on (\S+): HTTP (\d+), gRPC", capfd.readouterr().err)
        assert said
        assert httpx.get(f"http://{said[1]}:{said[2]}/v2/health/ready").status_code == 200
        with pytest.raises(httpx.ConnectError):  # nor any other address of this machine
            httpx.get(f"http://127.0.0.2:{said[2]}/v2/health/ready")
        started = descendants(process.pid)
        assert any("tritonserver" in Path(f"/proc/{pid}/cmdline").read_text() for pid in started)
        wave = encode(RECORDING, AudioFormat.WAV, 16_000, 16_000)
        body = {
            "input": "One, two.",
            "reference_audio": base64.b64encode(wave).decode(),
            "reference_text": "A few words.",
            "response_format": "pcm",
        }
        answer = httpx.post(f"{url}/v1/audio/speech", json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        assert len(answer.content) > 10_000
        # what client_http.py sends, which Triton itself would not answer for a model that streams
        url = f"{url}/v2/models/cosyvoice2/infer?request_id=0"
        answer = httpx.post(url, json=client_http(RECORDING), timeout=60)
        assert answer.status_code == 200, answer.text
        assert len(answer.json()["outputs"][0]["data"]) > 10_000
    assert process.returncode == 0
    assert [pid for pid in started if Path(f"/proc/{pid}").exists()] == []
