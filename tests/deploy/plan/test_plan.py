"""Plans come from figures, never from hope."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.deploy.plan.figures import FIGURES, SPREAD
from cosyserve.deploy.plan.placement import placed, write
from cosyserve.deploy.plan.plan import Demand, plan
from cosyserve.deploy.stages.deployment import Flow
from cosyserve.errors import InputError

ROOT = Path(__file__).parents[3]
H200 = Demand(4, "h200", "unet", "ours", 100, 300.0)
L20 = Demand(5, "l20", "dit", "trtllm", 8, 300.0)


def test_our_figures_are_those_that_were_kept() -> None:
    for figure in FIGURES:
        if figure.llm != "ours":
            continue
        kept = json.loads((ROOT / figure.source.partition(" ")[0]).read_text())
        point = kept["http_crowd" if "over HTTP" in figure.source else f"streams_{figure.streams}"]
        found = point.get(str(figure.streams), point)
        assert figure.first_audio_ms == round(found["first_audio_p95_ms"])
        assert found["c100"] >= 0.99


@given(
    st.integers(1, 40),
    st.sampled_from(["h200", "l20"]),
    st.sampled_from(["unet", "dit"]),
    st.sampled_from(["ours", "trtllm"]),
    st.integers(1, 3000),
    st.floats(1, 2000),
)
def test_a_plan_holds_what_was_measured_or_there_is_none(
    gpus: int, gpu: str, flow: str, llm: str, streams: int, milliseconds: float
) -> None:
    demand = Demand(gpus, gpu, flow, llm, streams, milliseconds)
    try:
        found = plan(demand)
    except InputError:
        return
    assert found.figure in FIGURES
    assert found.capacity >= streams
    assert found.gpus <= gpus
    assert found.figure.first_audio_ms <= milliseconds


@pytest.mark.parametrize(
    ("demand", "reason"),
    [
        (replace(H200, gpu="a100"), "nobody has measured --gpu a100 .* known: --gpu h200"),
        (replace(H200, llm="trtllm"), "nobody has measured --gpu h200 --flow unet --llm trtllm"),
        (replace(H200, first_audio_ms=20.0), "the soonest was 25 ms .p95. for 32 streams"),
        (replace(H200, streams=1601), "4 h200 serve at most 1600 streams .* takes 5 GPUs"),
        (replace(L20, gpus=4, streams=100), "4 l20 serve at most 4 streams .* takes 65 GPUs"),
    ],
)
def test_an_impossible_plan_is_refused_with_the_reason(demand: Demand, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        plan(demand)


def test_the_originals_tasks_per_gpu() -> None:
    """tasks per instance x instances per GPU x GPUs of token2wav / all GPUs"""
    spread = {f.streams: f.tasks_per_gpu for f in FIGURES if f.layout == SPREAD}
    assert spread == {8: 1 * 2 * 4 / (4 + 1), 48: 6 * 2 * 4 / (4 + 1)}


def test_workers_of_ours_have_a_gpu_each(tmp_path: Path) -> None:
    found = plan(replace(H200, streams=500))
    (program,) = placed(found, tmp_path / "native")
    assert program.gpus == (0, 1)
    assert str(program.command).count("--device cuda:") == 2


@pytest.mark.parametrize(
    ("flow", "memory"),
    [
        ("unet", "62 GiB each (cache 12, voices' prompts 41,"),
        ("dit", "20.6 GiB each (cache 12, all"),
    ],
)
def test_a_worker_takes_what_was_measured_of_its_flow(
    flow: Flow, memory: str, tmp_path: Path
) -> None:
    (program,) = placed(plan(replace(H200, flow=flow)), tmp_path)
    assert program.memory.startswith(memory)


@pytest.mark.parametrize(
    "demand",
    [L20, replace(L20, gpus=10, streams=16), Demand(3, "l20", "unet", "trtllm", 3, 300.0)],
)
def test_no_two_programs_share_a_port_and_no_gpu_is_left_out(
    demand: Demand, tmp_path: Path
) -> None:
    found = plan(demand)
    programs = placed(found, tmp_path)
    ports = [port for program in programs for port in program.ports]
    assert len(set(ports)) == len(ports)
    assert {gpu for program in programs for gpu in program.gpus} == set(range(found.gpus))
    gateway = str(programs[-1].command)
    for program in programs:
        if program.what == "Triton":
            assert f"localhost:{program.ports[1]}" in gateway
    rendered = [p.command.argv for p in programs if p.what == "repository"]
    assert len({argv[argv.index("--out") + 1] for argv in rendered}) == found.sets


def test_a_plan_is_written_as_data_and_as_a_script(tmp_path: Path) -> None:
    found = plan(L20)
    programs = placed(found, Path("demo"))
    write(found, programs, tmp_path / "plan")
    data = json.loads((tmp_path / "plan" / "plan.json").read_text())
    assert data["capacity"] == 8
    assert [program["command"] for program in data["programs"]] == [
        str(program.command) for program in programs
    ]
    script = (tmp_path / "plan" / "start.sh").read_text().splitlines()
    assert [shlex.split(line)[0] for line in script[3:]][-1] == "cosyserve"
    with pytest.raises(InputError, match="exists already"):
        write(found, programs, tmp_path / "plan")
