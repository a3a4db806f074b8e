"""Several Triton servers at once, some of them at a time."""

from __future__ import annotations

import asyncio
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cosyserve.bench.client import NoServerError
from cosyserve.bench.items import Manifest, Single
from cosyserve.bench.triton.client import TritonEndpoint
from cosyserve.bench.triton.sweep import Sweep, run_sweep, sweep_table, write_sweep
from cosyserve.errors import InputError
from tests.triton.scripted import STREAMING, Scripted, script


def sweep(addresses: list[str], **options: Any) -> Sweep:
    servers = tuple(TritonEndpoint(where, "grpc", STREAMING, True) for where in addresses)
    usual: dict[str, Any] = {"gpus": (1,), "tasks": (1,)}
    return Sweep(servers, Single(script(chunks=2, pause=0.01)), **usual | options)


def test_more_gpus_with_more_tasks(scripted_triton: Scripted, tmp_path: Path) -> None:
    """One server stands for two, on two GPUs."""
    rows = asyncio.run(run_sweep(sweep([scripted_triton.grpc] * 2, gpus=(1, 2), tasks=(1, 2))))
    assert [(row.gpus, row.tasks_per_instance) for row in rows] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert [row.figures.requests for row in rows] == [1, 2, 2, 4]
    assert [row.figures.failures for row in rows] == [{}] * 4
    shares = [row.concurrent_task_per_gpu for row in rows]
    assert shares == pytest.approx([1 / 2, 2 / 2, 2 / 3, 4 / 3])
    write_sweep(rows, tmp_path / "sweep.json")
    kept = json.loads((tmp_path / "sweep.json").read_text())
    assert kept[3]["concurrent_task_per_gpu"] == pytest.approx(4 / 3)
    assert kept[3]["figures"]["first_audio"]["p90"] > 0
    page = io.StringIO()
    Console(file=page, width=200).print(sweep_table(rows))
    assert "concurrent_task_per_gpu" in page.getvalue()
    line = next(line for line in page.getvalue().splitlines() if "1.33" in line)
    assert line.split("│")[1].strip() == line.split("│")[2].strip() == "2"
    with pytest.raises(InputError, match="can't be written"):
        write_sweep(rows, tmp_path / "no" / "sweep.json")


def test_tasks_per_gpu_count_the_gpus_of_the_llm() -> None:
    """As of the original: tasks x servers per GPU x GPUs / (GPUs + the LLM's)."""
    six = sweep([f"localhost:{n}" for n in range(6)], gpus=(1, 2, 3), instances_per_gpu=2)
    assert [six.tasks_per_gpu(gpus, 6) for gpus in six.gpus] == [6, 8, 9]
    assert replace(six, llm_gpus=0).tasks_per_gpu(3, 6) == 12
    assert six.needed == 6


def test_every_server_speaks_every_item(scripted_triton: Scripted, tmp_path: Path) -> None:
    (tmp_path / "me.wav").touch()
    lines = [f"item{n}||me.wav|{script(samples=480)}" for n in range(3)]
    (tmp_path / "list.txt").write_text("\n".join(lines))
    own = replace(sweep([scripted_triton.grpc] * 2, gpus=(2,)).servers[0], recordings=False)
    measured = Sweep((own, own), Manifest(tmp_path / "list.txt"), (2,), (2,), llm_gpus=0)
    (row,) = asyncio.run(run_sweep(measured))
    assert (row.figures.requests, row.figures.audio_seconds) == (6, pytest.approx(6 * 0.02))
    assert row.concurrent_task_per_gpu == 2


def test_failures_are_counted(scripted_triton: Scripted) -> None:
    measured = replace(sweep([scripted_triton.grpc]), source=Single(script(fail="INTERNAL")))
    (row,) = asyncio.run(run_sweep(measured))
    assert row.figures.served == 0
    page = io.StringIO()
    Console(file=page, width=200).print(sweep_table([row]))
    cells = [cell.strip() for cell in page.getvalue().splitlines()[3].split("│")[1:-1]]
    assert cells == ["1", "1", "0.5", *["–"] * 5, "1"]


def test_a_server_that_is_down_is_told_before_anything_runs(scripted_triton: Scripted) -> None:
    down = sweep([scripted_triton.grpc, "127.0.0.1:1"], gpus=(1, 2))
    with pytest.raises(NoServerError, match=r"127\.0\.0\.1:1"):
        asyncio.run(run_sweep(down))
    spare = sweep([scripted_triton.grpc, "127.0.0.1:1"], gpus=(1,))
    assert len(asyncio.run(run_sweep(spare))) == 1  # nobody asks it


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gpus": (1, 3)}, "3 GPUs with 1 servers each need 3 addresses, 2 are given"),
        ({"instances_per_gpu": 3}, "1 GPUs with 3 servers each need 3 addresses"),
        ({"gpus": ()}, "number of GPUs must be at least 1"),
        ({"tasks": (0,)}, "number of tasks must be at least 1"),
        ({"instances_per_gpu": 0}, "number of servers per GPU must be at least 1"),
        ({"llm_gpus": -1}, "number of the LLM's GPUs must be at least 0"),
    ],
)
def test_impossible_sweeps(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        sweep(["localhost:1", "localhost:2"], **options)
