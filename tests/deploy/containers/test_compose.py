"""Compose files: those of docker/ are as rendered, and hold what a service needs."""

from __future__ import annotations

import resource
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from cosyserve.cli import app
from cosyserve.deploy.containers.compose import compose_file
from cosyserve.deploy.containers.helm import values_file
from cosyserve.deploy.containers.kserve import inference_service
from cosyserve.deploy.containers.stack import Stack
from cosyserve.deploy.triton.settings import TritonSettings

FILES = sorted((Path(__file__).parents[3] / "docker").glob("compose.*.yaml"))
STACKS = [
    ["gpus=0"],
    ["gpus=2", "model=./native", "redis=true"],
    ["keys=false", "address=::1"],
    ["layout=triton", "gpus=0"],
    ["layout=triton", "gpus=2", "llm=trtllm", "model=m", "engine=e", "tokenizer=t"],
    ["layout=disaggregated", "gpus=4"],
]


def given(file: Path) -> list[str]:
    """The choices that a file says it was written with."""
    words = shlex.split(file.read_text("utf-8").splitlines()[0].rpartition("deploy compose ")[2])
    return [word.rstrip("`.") for word in words if word != "--set"]


def services(pairs: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(compose_file(Stack.of(pairs)))["services"]
    return found


def gpus(service: dict[str, Any]) -> list[str]:
    (device,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])
    ids: list[str] = device["device_ids"]
    return ids


def repository_settings(service: dict[str, Any]) -> TritonSettings:
    """The settings that a Triton server's script renders its repository with."""
    words = shlex.split(service["command"][0])
    pairs = [words[at + 1] for at, word in enumerate(words) if word == "--set"]
    return TritonSettings.of(pairs, model_dir=words[words.index("--model") + 1])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_file_is_as_rendered(file: Path) -> None:
    assert file.read_text("utf-8") == compose_file(Stack.of(given(file)))


@pytest.mark.parametrize("write", [compose_file, values_file, inference_service])
def test_a_file_says_how_it_is_written_in_words_for_a_shell(write: Callable[[Stack], str]) -> None:
    pairs = ["model=my models/it's native", "slots=8", "claim=models"]
    words = write(Stack.of(pairs)).splitlines()[0].partition("`")[2].removesuffix("`.")
    assert [word for word in shlex.split(words)[3:] if word != "--set"] == pairs


def test_every_deployment_of_the_original_has_its_file() -> None:
    names = {file.stem.removeprefix("compose.") for file in FILES}
    assert names == {"server", "triton", "dit", "disaggregated"}


@pytest.mark.parametrize("pairs", [*STACKS, *map(given, FILES)], ids=" ".join)
def test_it_is_valid_compose(pairs: list[str]) -> None:
    compose_spec = pytest.importorskip("compose_spec")
    parsed = compose_spec.PyCompose.from_yaml(compose_file(Stack.of(pairs)))
    parsed.validate()
    parsed.to_spec()


@pytest.mark.parametrize("pairs", [*STACKS, *map(given, FILES)], ids=" ".join)
def test_every_container_is_closed_and_comes_back(pairs: list[str]) -> None:
    for name, service in services(pairs).items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["restart"] == "unless-stopped", name
        if "triton" in service["image"]:
            assert service["shm_size"] == "1024m"
            if "deploy triton" in service["command"][0]:
                assert repository_settings(service).slots == 64 or pairs[-1] == "gpus=0"
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:") or "COSYSERVE_API_KEYS" in service["environment"]


@pytest.mark.parametrize("pairs", STACKS, ids=" ".join)
def test_every_container_has_one_init(pairs: list[str]) -> None:
    for service in services(pairs).values():
        assert service.get("init", False) == service["image"].endswith("-triton")


def test_metrics_are_for_this_host_alone() -> None:
    for pairs, name in ((["gateway_metrics_port=9191"], "server"), (["layout=triton"], "gateway")):
        made = services(pairs)[name]
        port = Stack.of(pairs).gateway_metrics_port
        assert f"127.0.0.1:{port}:9090" in made["ports"]
        assert made["environment"]["COSYSERVE_METRICS_PORT"] == "9090"


def test_keys_must_be_set_or_compose_refuses() -> None:
    environment = services([])["server"]["environment"]
    assert environment["COSYSERVE_API_KEYS"].startswith("${COSYSERVE_API_KEYS:?")


def test_each_gpu_has_a_worker() -> None:
    server = services(["gpus=2"])["server"]
    assert gpus(server) == ["0", "1"]
    assert server["command"][-4:] == ["--device", "cuda:0", "--device", "cuda:1"]
    assert "deploy" not in services(["gpus=0"])["server"]


def test_lm_on_the_first_gpu_and_token2wav_on_the_others() -> None:
    made = services(["layout=disaggregated", "gpus=4", "instances_per_gpu=2"])
    placed = {name: gpus(service) for name, service in made.items() if name != "gateway"}
    assert placed == {"llm": ["0"]} | {f"triton-{n}": [str((n + 1) // 2)] for n in range(1, 7)}
    assert repository_settings(made["llm"]).role == "lm"
    speaking = repository_settings(made["triton-6"])
    assert (speaking.role, speaking.grpc) == ("token2wav", "llm:8001")
    servers = ",".join(f"triton-{n}:8001" for n in range(1, 7))
    assert made["gateway"]["command"] == ["serve", "--engine", f"triton://{servers}"]


def test_trtllm_serve_draws_for_the_dit() -> None:
    made = services(given(next(file for file in FILES if file.stem == "compose.dit")))
    assert "trtllm-serve serve --tokenizer /tokenizer /engine" in made["llm"]["command"][0]
    assert repository_settings(made["triton"]).llm_url == "http://llm:8000/v1"
    assert made["gateway"]["command"][-1] == "triton://triton:8001/cosyvoice2_dit"


def test_the_command_writes_a_file_once(tmp_path: Path) -> None:
    out = tmp_path / "compose.yaml"
    words = ["deploy", "compose", "--set", "gpus=0", "--out", str(out)]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert out.read_text() == compose_file(Stack.of(["gpus=0"]))
    again = CliRunner().invoke(app, words)
    assert again.exit_code != 0
    assert "exists already" in str(again.exception)


def test_a_full_disk_leaves_no_file(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        run = CliRunner().invoke(app, ["deploy", "compose", "--out", str(tmp_path / "out.yaml")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "can't be written" in str(run.exception)
    assert list(tmp_path.iterdir()) == []
