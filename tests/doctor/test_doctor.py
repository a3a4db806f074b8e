"""The doctor sees what is wrong, and says what to do."""

from __future__ import annotations

import json
import re
import shutil
import socket
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest
import torch

from cosyserve.doctor import troubles
from cosyserve.doctor.engines import engine
from cosyserve.doctor.finding import Finding
from cosyserve.doctor.first_audio import first_audio
from cosyserve.doctor.machine import disk, no_gpu, processors, shared_memory
from cosyserve.doctor.model import model_parts
from cosyserve.doctor.servers import servers, triton_health
from cosyserve.doctor.troubles import Trouble
from cosyserve.models import kernels
from cosyserve.triton.process import Ports
from tests.published import linked

PAGE = Path(__file__).parents[2] / "docs" / "troubleshooting.md"
NAMED = [value for value in vars(troubles).values() if isinstance(value, Trouble)]


def test_the_page_has_every_trouble_and_no_other() -> None:
    rows = re.findall(r"^\| (.*?) \| (.*?) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert rows[2:] == [(trouble.seen, trouble.fix) for trouble in (*NAMED, *troubles.OTHERS)]


def usage(free: int) -> object:
    return lambda _: shutil._ntuple_diskusage(free, 0, free)


@pytest.mark.parametrize("region", ["triton_python_backend_shm_region_1", "cosyserve_0f_1"])
def test_little_shared_memory_and_what_dead_servers_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, region: str
) -> None:
    (finding,) = shared_memory(tmp_path)
    assert finding.good
    (tmp_path / region).touch()
    monkeypatch.setattr("cosyserve.doctor.machine._running", lambda _: False)
    assert [finding.good for finding in shared_memory(tmp_path)] == [True, None]
    monkeypatch.setattr(shutil, "disk_usage", usage(64 << 20))
    small, left = shared_memory(tmp_path)
    assert small.advice == troubles.SMALL_SHM.fix
    assert left.advice == troubles.OLD_REGIONS.fix
    assert not list(shared_memory(tmp_path / "none"))


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "not" / "yet" / "there"
    monkeypatch.setattr(shutil, "disk_usage", usage(1 << 30))
    assert disk(home).advice == troubles.FULL_DISK.fix
    monkeypatch.setattr(shutil, "disk_usage", usage(1 << 40))
    assert disk(home).good
    assert str(tmp_path) in disk(home).detail


def test_why_there_is_no_gpu() -> None:
    assert no_gpu(None, "").advice == ""  # a torch for CPUs is a choice
    assert no_gpu("13.0", "").advice == troubles.NO_DRIVER.fix
    assert no_gpu("13.0", "470.1").advice == troubles.OLD_DRIVER.fix


@pytest.fixture
def gpu_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], dict[str, Finding]]:
    """What is found on a machine with a small GPU that has so many bytes free."""
    facts = {"multi_processor_count": 58, "shared_memory_per_block_optin": 99 << 10}
    card = SimpleNamespace(name="NVIDIA L4", major=8, minor=9, **facts)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr("cosyserve.doctor.machine.nvidia_smi", lambda _: "570.1")
    monkeypatch.setattr(kernels, "AVAILABLE", True)

    def found(free: int) -> dict[str, Finding]:
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, 24 << 30))
        kernels.gpu.cache_clear()
        try:
            return {finding.name: finding for finding in processors()}
        finally:
            kernels.gpu.cache_clear()

    return found


def test_a_gpu_with_less_free_memory_than_the_model_takes(
    gpu_with: Callable[[int], dict[str, Finding]],
) -> None:
    """The trouble names the bound."""
    assert "less than 7 GiB" in troubles.FULL_GPU.seen
    enough, short = (gpu_with(free)["cuda:0"] for free in (7 << 30, (7 << 30) - 1))
    assert (enough.good, enough.advice) == (True, "")
    assert (short.good, short.advice) == (None, troubles.FULL_GPU.fix)


def test_what_a_gpu_runs_on(gpu_with: Callable[[int], dict[str, Finding]]) -> None:
    found = gpu_with(20 << 30)
    assert found["driver"].detail == "570.1"
    assert found["CUDA"].detail.startswith("12.8")
    assert found["kernels"].detail.startswith("cuda:0: kernels with small tiles: a program has 99")
    assert found["kernels"].good is None


@pytest.mark.server
def test_a_taken_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = {finding.name: finding for finding in servers(port, Ports.free())}
    assert found[f"port {port}"].advice == troubles.TAKEN_PORT.fix
    assert [finding.advice for name, finding in found.items() if name.startswith("port")] == [
        troubles.TAKEN_PORT.fix,
        "",
        "",
        "",
    ]


@pytest.mark.server
@pytest.mark.parametrize(("status", "good"), [(200, True), (400, False), (503, False), (404, None)])
def test_the_health_of_triton(status: int, good: bool | None) -> None:
    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Health) as server:
        Thread(target=server.handle_request, daemon=True).start()
        finding = triton_health(Ports(http=server.server_port))
    assert (finding and finding.good) == good
    assert triton_health(Ports.free()) is None


def test_engines_of_another_library_or_gpu(tmp_path: Path) -> None:
    assert engine(tmp_path, "0.20.0", "NVIDIA L20").advice == troubles.OTHER_TRTLLM.fix
    (tmp_path / "config.json").write_text(json.dumps({"version": "0.20.0"}))
    assert engine(tmp_path, "0.20.0", "NVIDIA L20").good
    assert engine(tmp_path, "", "").good is None
    assert "0.20.0, here is 1.0.0" in engine(tmp_path, "1.0.0", "NVIDIA L20").detail
    (tmp_path / "cosyserve.json").write_text(json.dumps({"gpu": "NVIDIA L20"}))
    assert engine(tmp_path, "0.20.0", "NVIDIA L20").good
    other = engine(tmp_path, "0.20.0", "NVIDIA H200")
    assert (other.good, other.advice) == (False, troubles.OTHER_GPU.fix)


def test_the_first_audio_now(tmp_path: Path, native3_folder: Path) -> None:
    for model in ("test", str(native3_folder)):
        finding = first_audio(model, "cpu")
        assert re.fullmatch(r"after \d+ ms", finding.detail), finding.advice
    broken = first_audio(str(tmp_path), "cpu")
    assert broken.good is False
    assert str(tmp_path) in broken.advice


def test_a_folder_lacks_the_tokenizer_of_its_family(
    tmp_path: Path, cosyvoice3_folder: Path
) -> None:
    folder = linked(cosyvoice3_folder, tmp_path / "model", ["speech_tokenizer_v3.onnx"])
    findings = {finding.name: finding for finding in model_parts(str(folder))}
    assert findings["lm"].good
    assert not findings["speech_tokenizer"].good
    assert "speech_tokenizer_v3.onnx" in findings["speech_tokenizer"].advice
