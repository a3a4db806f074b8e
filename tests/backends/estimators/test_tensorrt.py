"""TensorRT engines: whole builds by TensorRT-RTX where it is installed, the rest on a stand-in."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from cosyserve.backends.estimators import engines
from cosyserve.backends.estimators.engines import open_engines
from cosyserve.backends.estimators.export import to_onnx
from cosyserve.backends.estimators.flow import flow_graphs, flow_shapes
from cosyserve.backends.estimators.graphs import NetworkGraph, Sizes
from cosyserve.backends.estimators.tensorrt import runtime as tensorrt_runtime
from cosyserve.backends.estimators.tensorrt.build import build_plan
from cosyserve.backends.estimators.tensorrt.graph import TensorRTGraph
from cosyserve.backends.estimators.tensorrt.library import LIBRARIES, RTX, TensorRT, find_tensorrt
from cosyserve.backends.estimators.tensorrt.runtime import TensorRTRuntime
from cosyserve.errors import CheckpointError, CosyError, InputError
from tests.backends.estimators.flows import exported, small_flow
from tests.backends.estimators.tensorrt_stand_in import API, Engine, Stream, stand_in, use_streams

CPU = torch.device("cpu")
SMALL = flow_shapes(3, 500)


@pytest.fixture(scope="module")
def graph() -> NetworkGraph:
    return flow_graphs(small_flow("dit"))[1]


@pytest.fixture(scope="module")
def plan(graph: NetworkGraph) -> bytes:
    half = to_onnx(graph.cast(torch.float16))
    return build_plan(stand_in(), graph, half, SMALL, "NVIDIA L20")


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> list[Stream]:
    return use_streams(monkeypatch)


@pytest.fixture
def engine(graph: NetworkGraph, plan: bytes, streams: list[Stream]) -> TensorRTGraph:
    return TensorRTGraph(stand_in(), plan, graph, CPU)


def assert_near(found: list[torch.Tensor], wanted: tuple[torch.Tensor, ...]) -> None:
    for ours, exact in zip(found, wanted, strict=True):
        assert ours.shape == exact.shape
        assert (ours.float() - exact).norm() < 5e-3 * exact.norm()


@pytest.mark.parametrize("sizes", [Sizes(2, 30, 0), Sizes(3, 500, 500), Sizes(8, 7, 11)])
def test_an_engine_computes_what_torch_does(
    engine: TensorRTGraph, graph: NetworkGraph, sizes: Sizes
) -> None:
    """More rows than it has room for are several calls."""
    example = graph.example(sizes)
    assert_near(engine(example), graph.compute(example))
    runs = [len(context.runs) for context in fake(engine).contexts]
    assert sum(runs) == -(-sizes.rows // 3)


def fake(engine: TensorRTGraph) -> Engine:
    assert isinstance(engine._engine, Engine)
    return engine._engine


@pytest.mark.parametrize("sizes", [Sizes(2, 502, 0), Sizes(2, 30, 501)])
def test_what_is_too_long_is_told(engine: TensorRTGraph, graph: NetworkGraph, sizes: Sizes) -> None:
    with pytest.raises(InputError, match=r"holds 10 s: use shorter text, .*--max-frames"):
        engine(graph.example(sizes))
    assert len(engine.contexts) == 2


def test_contexts_come_back_whatever_happens(engine: TensorRTGraph, graph: NetworkGraph) -> None:
    example = graph.example(Sizes(2, 8, 0))
    for context in fake(engine).contexts:
        context.fails = True
    with pytest.raises(CosyError, match="TensorRT can't compute 'flow"):
        engine(example)
    assert len(engine.contexts) == 2
    refused = r"'flow\.chunk' takes no x of \[2, 80, 1\]"  # 2 frames are the least
    with pytest.raises(CosyError, match=refused):
        engine(graph.example(Sizes(2, 1, 0)))
    assert len(engine.contexts) == 2
    for context in fake(engine).contexts:
        context.fails = False
    assert_near(engine(example), graph.compute(example))


def test_contexts_are_bounded_and_a_caller_waits_for_one(
    engine: TensorRTGraph, graph: NetworkGraph
) -> None:
    example, done = graph.example(Sizes(2, 8, 0)), threading.Event()

    def call() -> None:
        engine(example)
        done.set()

    with engine.contexts.lend() as first, engine.contexts.lend() as second:
        assert first is not second
        assert len(engine.contexts) == 0
        waiting = threading.Thread(target=call)
        waiting.start()
        assert not done.wait(0.1)
    assert done.wait(10)
    waiting.join()
    assert len(engine.contexts) == 2


def test_a_call_runs_in_its_callers_stream_behind_the_contexts_last_one(
    engine: TensorRTGraph, graph: NetworkGraph, streams: list[Stream]
) -> None:
    example = graph.example(Sizes(2, 8, 0))
    engine(example)
    streams.append(Stream(2))
    engine(example)
    one, two = streams
    (used,) = (context for context in fake(engine).contexts if context.runs)
    assert used.runs == [1, 2]
    assert (one.waited, two.waited) == ([], [(one, 1)])


def test_an_engine_is_made_once_for_what_its_name_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow, said = small_flow("unet"), list[str]()
    use_streams(monkeypatch)
    monkeypatch.setattr(engines, "TRIED", (Sizes(2, 4),))
    monkeypatch.setattr(tensorrt_runtime, "to_onnx", lambda graph: exported("unet")[graph.name])

    def names(runtime: TensorRTRuntime, force: bool = False) -> list[str]:
        open_engines(flow_graphs(flow), runtime, tmp_path, said.append, force=force)
        return sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".plan")

    (first,) = names(TensorRTRuntime(stand_in(), "float16", SMALL, CPU))
    assert first.startswith("flow.whole.")
    assert first.endswith(".float16.tensorrt-10.13.3.9.nvidia-l20.plan")
    made = (tmp_path / first).stat().st_mtime_ns
    assert names(TensorRTRuntime(stand_in(), "float16", SMALL, CPU)) == [first]
    assert (tmp_path / first).stat().st_mtime_ns == made
    assert "is made already" in said[-1]
    assert names(TensorRTRuntime(stand_in(), "float16", SMALL, CPU), force=True) == [first]
    assert (tmp_path / first).stat().st_mtime_ns > made
    assert len(names(TensorRTRuntime(stand_in("10.14.0"), "float16", SMALL, CPU))) == 2
    assert len(names(TensorRTRuntime(stand_in(), "float32", SMALL, CPU))) == 3
    use_streams(monkeypatch, "NVIDIA H200")
    assert len(names(TensorRTRuntime(stand_in(), "float16", SMALL, CPU))) == 4
    weight = next(flow.estimator.parameters())
    weight[0] += 1e-3
    assert len(names(TensorRTRuntime(stand_in(), "float16", SMALL, CPU))) == 5


def test_what_no_engine_can_be_made_of(graph: NetworkGraph, streams: list[Stream]) -> None:
    with pytest.raises(CheckpointError, match=r"can't read the graph 'flow\.chunk': no ONNX"):
        build_plan(stand_in(), graph, b"no", SMALL, "")
    with pytest.raises(CheckpointError, match="can't load the engine"):
        TensorRTGraph(stand_in(), b"no", graph, CPU)


def test_a_machine_without_a_gpu_builds_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="builds an engine on the GPU that is to run it"):
        stand_in().gpu(None)
    with pytest.raises(InputError, match="--compute-capability is for TensorRT-RTX"):
        stand_in().gpu(CPU, "8.9")
    with pytest.raises(InputError, match="give --compute-capability"):
        TensorRT(RTX, None).gpu(None)


def test_a_library_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LIBRARIES:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match="pip install tensorrt"):
        find_tensorrt()


@pytest.fixture
def rtx() -> Any:
    return pytest.importorskip(RTX, reason="there is no TensorRT-RTX: pip install tensorrt-rtx")


def test_the_stand_in_has_calls_that_tensorrt_has(rtx: Any) -> None:
    for name, like in API.items():
        calls = [call for call in vars(like) if not call.startswith("_")]
        assert calls
        assert [call for call in calls if not hasattr(getattr(rtx, name), call)] == []
    ours = vars(stand_in().api)
    assert [name for name in ours if not hasattr(rtx, name)] == []
    assert rtx.NetworkDefinitionCreationFlag.STRONGLY_TYPED
    assert rtx.MemoryPoolType.WORKSPACE is not None


@pytest.mark.parametrize("kind", ["unet", "dit", "rotary_dit"])
def test_tensorrt_rtx_builds_every_graph_without_a_gpu(kind: str, tmp_path: Path, rtx: Any) -> None:
    """Strongly typed, for Ada, in float16."""
    runtime = TensorRTRuntime(TensorRT(RTX, rtx), "float16", flow_shapes(), None, "8.9")
    said: list[str] = []
    opened = open_engines(flow_graphs(small_flow(kind)), runtime, tmp_path, said.append)
    assert set(opened.values()) == {None}
    assert sum("not tried" in line for line in said) == len(opened)
    plans = list(tmp_path.glob("flow.*.float16.tensorrt-rtx-*.sm89.plan"))
    assert len(plans) == len(opened) == (2 if kind == "dit" else 1)
    assert min(plan.stat().st_size for plan in plans) > 100_000
    with pytest.raises(InputError, match="nothing for compute capability 9\\.0"):
        runtime.library.gpu(None, "9.0")
