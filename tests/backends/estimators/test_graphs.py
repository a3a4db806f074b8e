"""The graphs compute what the networks do, at any length, in any batch and under any mask; so
speech through onnxruntime is ours."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto
from torch import Tensor, nn

from cosyserve.backends.estimators.export import to_onnx
from cosyserve.backends.estimators.flow import CHUNK, WHOLE, flow_graphs, flow_shapes
from cosyserve.backends.estimators.graphs import Sizes
from cosyserve.backends.estimators.onnx_runtime import OnnxGraph
from cosyserve.contracts import Floats
from cosyserve.engine.compute.token2wav import Token2Wav
from cosyserve.errors import InputError
from cosyserve.models.config import VocoderConfig
from cosyserve.models.flow.dit import DiT, DiTCache
from cosyserve.models.flow.flow import Flow
from cosyserve.models.flow.foreign import ForeignEstimator
from cosyserve.models.flow.masks import attention_bias, valid
from tests.backends.estimators.flows import CONFIGS, exported, small_flow
from tests.engine.compute.test_token2wav import tokens, voice
from tests.golden.fill import fill
from tests.golden.weights import filled_vocoder

MEL = 80
Found = tuple[Flow, ForeignEstimator]


@pytest.fixture(scope="module", params=CONFIGS)
def found(request: pytest.FixtureRequest) -> Found:
    """A flow, and its estimator in onnxruntime."""
    flow = small_flow(request.param)
    graphs = {name: OnnxGraph(onnx) for name, onnx in exported(request.param).items()}
    dit = flow.estimator.config if isinstance(flow.estimator, DiT) else None
    return flow, ForeignEstimator(graphs[WHOLE], graphs.get(CHUNK), dit)


def inputs(rows: int, frames: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(rows * frames)
    x, mu, prompt = torch.randn(3, rows, MEL, frames, generator=random)
    speaker = torch.randn(rows, MEL, generator=random)
    return x, mu, speaker, prompt, torch.rand(rows, generator=random)


def assert_same(ours: Tensor, wanted: Tensor) -> None:
    assert ours.shape == wanted.shape
    torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-5 * wanted.abs().max().item())


@pytest.mark.parametrize(("rows", "frames"), [(1, 2), (2, 150), (6, 77)])
@pytest.mark.parametrize("mask", ["full", "ragged", "chunks", "ragged chunks"])
@torch.inference_mode()
def test_whole_rows(found: Found, rows: int, frames: int, mask: str) -> None:
    flow, foreign = found
    lengths = torch.arange(frames - rows + 1, frames + 1) if "ragged" in mask else None
    inside = None if lengths is None else valid(lengths.clamp(min=1), frames)
    given = inputs(rows, frames)
    bias = attention_bias(inside, frames, 20 if "chunks" in mask else 0, given[0])
    wanted = flow.estimator(*given, bias)
    assert_same(foreign(*given, bias), wanted)
    if mask == "chunks" and frames > 20:  # else the mask would be lost unseen
        assert not torch.allclose(wanted, flow.estimator(*given, None), atol=1e-3)


@torch.inference_mode()
def test_chunks_of_a_dit_with_its_caches() -> None:
    flow = small_flow("dit")
    estimator = flow.estimator
    assert isinstance(estimator, DiT)
    chunk = OnnxGraph(exported("dit")[CHUNK])
    foreign = ForeignEstimator(chunk, chunk, estimator.config)
    ours: DiTCache | None = None
    wanted: DiTCache | None = None
    for rows, frames in ((2, 40), (2, 3), (2, 25)):
        given = inputs(rows, frames)
        v, ours = foreign.extend(*given, ours)
        expected, wanted = estimator.extend(*given, wanted)
        assert_same(v, expected)
        assert_same(ours.conv, wanted.conv)
        assert_same(ours.attention, wanted.attention)
    assert wanted is not None
    assert wanted.attention.shape[3] == 68


@pytest.fixture
def pair(found: Found) -> tuple[Token2Wav, Token2Wav]:
    """Ours, and the same through onnxruntime, where other shapes would be static."""
    (flow, foreign), other = found, Flow(found[0].config)
    vocoder = filled_vocoder(VocoderConfig(base=32, f0_channels=32), 0, fill)
    other.decoder["estimator"] = nn.Identity()
    other.load_state_dict(
        {name: part for name, part in flow.state_dict().items() if "estimator" not in name}
    )
    other.decoder["estimator"] = foreign
    pair = Token2Wav(flow, vocoder), Token2Wav(other, vocoder, rows=(1, 2), static=True)
    vocoder.requires_grad_(False)
    return pair


def spoken(token2wav: Token2Wav, *ends: int) -> Floats:
    """A stream whose chunks are given so many tokens."""
    state = token2wav.begin(voice(1, 10), with_prompt=True, seed=1, speed=1.0)
    heard = []
    for end in ends:
        row = tokens(1, 150)[:end]
        ((samples, state),) = token2wav.advance([state], [row], [end == ends[-1]])
        heard.append(samples)
    return np.concatenate(heard)


def off_by(ours: Floats, wanted: Floats) -> float:
    assert len(ours) == len(wanted)
    return float(np.linalg.norm(ours - wanted) / np.linalg.norm(wanted))


def test_speech_through_another_runtime_is_ours(pair: tuple[Token2Wav, Token2Wav]) -> None:
    """Streamed, and whole utterances of several lengths together."""
    streamed = [spoken(token2wav, 18, 43, 90) for token2wav in pair]
    assert off_by(streamed[1], streamed[0]) < 1e-3
    rows = [tokens(seed, count) for seed, count in enumerate((12, 30, 21))]
    ours, others = (
        token2wav.whole(
            [token2wav.begin(voice(n, 10), with_prompt=True, seed=n, speed=1.0) for n in range(3)],
            rows,
        )
        for token2wav in pair
    )
    for (samples, _), (wanted, _) in zip(others, ours, strict=True):
        assert off_by(samples, wanted) < 1e-3


def test_streamed_speech_does_not_depend_on_where_chunks_end(
    pair: tuple[Token2Wav, Token2Wav],
) -> None:
    """As long as they end on the grid, prompt and look-ahead included."""
    _, other = pair
    if other.flow.grid > 1:  # a DiT's caches are of the chunks that it had
        assert off_by(spoken(other, 18, 43, 68, 90), spoken(other, 43, 90)) < 1e-2  # -40 dB


def element_types(data: bytes) -> dict[str, int]:
    """The type of every tensor of a graph, by its name."""
    graph = onnx.shape_inference.infer_shapes(onnx.load_from_string(data)).graph
    values = (*graph.value_info, *graph.input, *graph.output)
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    return types | {weight.name: weight.data_type for weight in graph.initializer}


def test_half_precision_has_islands_of_float32() -> None:
    graph = flow_graphs(small_flow("unet"))[0]
    half = graph.cast(torch.float16)
    data = to_onnx(half)
    types, nodes = element_types(data), onnx.load_from_string(data).graph.node
    assert {types[name] for name in graph.inputs if name != "t"} == {TensorProto.FLOAT16}
    assert types["t"] == TensorProto.FLOAT
    for kind, count in (("LayerNormalization", 2), ("Softmax", 1), ("Sin", 1)):
        islands = [node for node in nodes if node.op_type == kind]
        assert len(islands) >= count
        assert {types[node.input[0]] for node in islands} == {TensorProto.FLOAT}
    products = [types[node.input[0]] for node in nodes if node.op_type in ("MatMul", "Conv")]
    heavy = products.count(TensorProto.FLOAT16)
    assert heavy > 0.9 * len(products)
    example = graph.example(Sizes(2, 60, 9))
    exact = graph.compute(example)
    rounded = half.compute({k: v if k == "t" else v.half() for k, v in example.items()})
    for ours, wanted in zip(rounded, exact, strict=True):
        assert (ours.float() - wanted).norm() < 5e-3 * wanted.norm()


def test_an_example_hides_something_and_shows_something() -> None:
    graph = flow_graphs(small_flow("unet"))[0]
    bias = graph.example(Sizes(2, 9, 0))["bias"]
    assert bias.shape == (2, 1, 9, 9)
    assert bias.isinf().any()
    assert (bias == 0).any(dim=-1).all()


@pytest.mark.parametrize(("rows", "frames"), [(1, 3000), (16, 100)])
def test_limits_hold_the_usual_sizes(rows: int, frames: int) -> None:
    assert flow_shapes(16, 3008).largest == Sizes(16, 3008, 3008)
    with pytest.raises(InputError, match=f"got {rows} of {frames}"):
        flow_shapes(rows, frames)
