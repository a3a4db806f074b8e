"""The stages of the original's two scripts: which there are, what they run, what they need."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from cosyserve.deploy.stages.deployment import Deployment
from cosyserve.deploy.stages.dit import spread_ports
from cosyserve.deploy.stages.run import show
from cosyserve.deploy.stages.scripts import SCRIPTS, chosen
from cosyserve.deploy.stages.stage import ServerCommand
from cosyserve.errors import InputError
from cosyserve.triton.process import Ports

DOCS = Path(__file__).parents[3] / "docs" / "stages.md"
EVERY = [(flow, llm) for flow in ("unet", "dit") for llm in ("ours", "trtllm")]


def transcript(deployment: Deployment) -> str:
    lines: list[str] = []
    show(SCRIPTS[deployment.flow](deployment), lines.append)
    return "\n".join(lines)


@pytest.mark.parametrize(("flow", "llm"), EVERY)
def test_the_docs_have_the_dry_run(flow: str, llm: str) -> None:
    deployment = Deployment(
        Path("."), flow, llm, reference_audio=Path("me.wav"), reference_text="What I say."
    )
    assert textwrap.indent(transcript(deployment), "    ") in DOCS.read_text("utf-8")


@pytest.mark.parametrize(("flow", "last"), [("unet", 6), ("dit", 8)])
def test_numbers_are_those_of_the_original(flow: str, last: int) -> None:
    stages = SCRIPTS[flow](Deployment(Path("."), flow))
    assert [stage.number for stage in stages] == list(range(-1, last + 1))
    some = chosen(Deployment(Path("."), flow), 2, 4)
    assert [stage.number for stage in some] == [2, 3, 4]
    for first, stop in ((3, 2), (-2, 1), (0, last + 1)):
        with pytest.raises(InputError, match=rf"--stage {first} --stop-stage {stop}: .*download"):
            chosen(Deployment(Path("."), flow), first, stop)


def test_every_token2wav_server_has_ports_and_a_gpu_of_its_own() -> None:
    deployment = Deployment(Path("."), "dit", "trtllm")
    stage = chosen(deployment, 7, 7)[0]
    llm, *servers = [command for command in stage.commands if isinstance(command, ServerCommand)]
    assert "trtllm-serve" in llm.argv
    assert llm.env == {"CUDA_VISIBLE_DEVICES": "0"}
    assert [server.env["CUDA_VISIBLE_DEVICES"] for server in servers] == list("112233")
    ports = spread_ports(deployment)
    numbers = [port for each in ports for port in (each.http, each.grpc, each.metrics)]
    assert len(set(numbers)) == 18
    assert [each.grpc for each in ports] == list(range(18001, 18007))


def test_servers_that_would_share_a_port_are_refused() -> None:
    near = Deployment(Path("."), "dit", first_ports=Ports(9000, 9001, 9002))
    assert chosen(near, 2, 6)
    with pytest.raises(InputError, match=r"stage 7 .* needs port 9001 twice: choose --http-port"):
        chosen(near, 2, 7)
    with pytest.raises(InputError, match="needs port 18000 twice"):
        chosen(Deployment(Path("."), "dit", "trtllm", llm_port=18000), 3, 3)


@pytest.mark.parametrize("pair", ["foo=bar", "slots=0", "device=meta"])
def test_a_setting_that_no_repository_has_is_refused_before_any_stage(pair: str) -> None:
    with pytest.raises(InputError, match=pair.split("=")[0]):
        chosen(Deployment(Path("."), settings=(pair,)), 0, 0)


def test_a_stage_says_what_it_lacks(tmp_path: Path) -> None:
    for flow, llm in EVERY:
        for stage in SCRIPTS[flow](Deployment(tmp_path, flow, llm, manifest=tmp_path / "list")):
            lacking = [need.otherwise for need in stage.needs if not need.met()]
            assert bool(lacking) == (stage.number > 0), (flow, llm, stage)
            for sentence in lacking:
                assert re.search(r"run --stage \d|--stage \d|give --|leave out", sentence), sentence


def test_a_recording_or_a_speaker_file_is_needed(tmp_path: Path) -> None:
    (need,) = Deployment(tmp_path).needs_of_voice()
    assert not need.met()
    assert "--reference-audio" in need.otherwise
    (tmp_path / "CosyVoice2-0.5B").mkdir()
    (tmp_path / "CosyVoice2-0.5B" / "spk2info.pt").touch()
    assert need.met()
    (need,) = Deployment(tmp_path, "dit").needs_of_voice()
    assert not need.met()
    with pytest.raises(InputError, match="--reference-audio"):
        Deployment(tmp_path, "dit", use_spk2info_cache=True)
