"""Weights of a torch module, out of an ONNX file that was exported from the same network.

Exporters rename, transpose, fold and decompose, so layers are recognised by what they compute:
the weight-carrying nodes of the graph are laid beside the layers of the module in the order in
which both run, kind by kind and shape by shape. Either everything fits or nothing is returned.

Nothing of the file is run. Two layers of one kind and shape may be mistaken for each other:
`onnx/encoders.py` compares outputs to find that out.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from cosyserve.errors import CheckpointError

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d
WeightedModule = nn.Linear | nn.LayerNorm | nn.Conv1d | nn.Conv2d | BatchNorm
Array = npt.NDArray[Any]
State = dict[str, Tensor]

CONVOLUTION, LAYER_NORM, BATCH_NORM = "convolution", "layer norm", "batch norm"
LINEAR_BIAS, LINEAR = "linear layer with bias", "linear layer without bias"


class _MisfitError(Exception):
    """Graph and module are not the same network."""


def read_onnx(path: Path) -> ModelProto:
    """Parse an ONNX file whose outside tensors, if any, lie in its own folder."""
    import onnx

    try:
        model = onnx.load(str(path), load_external_data=False)
        folder = path.parent.resolve()
        outside = [
            location
            for location in _external_locations(model)
            if not (folder / location).resolve().is_relative_to(folder)
        ]
    except Exception as error:  # protobuf and onnx raise many kinds on broken files
        raise CheckpointError(f"{path}: not a readable ONNX file ({error})") from error
    if outside:
        raise CheckpointError(f"{path}: refers to data outside its folder: '{outside[0]}'")
    return model


def match_weights(
    model: ModelProto, path: Path, module: nn.Module, example: tuple[Tensor, ...]
) -> State:
    """A complete state dict for `module` (may be on the meta device) from the model of `path`.

    `example` holds inputs, of any values, that make the module run all of its layers.
    """
    try:
        nodes = list(_Graph(model.graph, path.parent).weighted_nodes())
    except Exception as error:  # names, shapes and bytes in the file may be any nonsense
        raise CheckpointError(f"{path}: broken ONNX graph ({error})") from error
    try:
        state = _matched(nodes, _layers_as_run(module, example))
    except _MisfitError as misfit:
        raise CheckpointError(f"{path}: {misfit}") from misfit
    for key in module.state_dict():
        if key not in state:
            raise CheckpointError(f"{path}: nothing fits '{key}'")
    return state


def _matched(nodes: list[_Weighted], layers: list[_Layer]) -> State:
    """Give each layer the first unused node of its kind and shape."""
    unused: defaultdict[tuple[str, tuple[int, ...]], deque[_Weighted]] = defaultdict(deque)
    for node in nodes:
        unused[node.kind, node.shape].append(node)
    state: State = {}
    shifts: dict[str | None, Tensor] = {}  # biases of convolutions that swallowed a batch norm
    for layer in layers:
        if isinstance(layer.module, BatchNorm) and layer.fed_by in shifts:
            weights = _pure_shift(shifts.pop(layer.fed_by), layer.module.eps)
        elif candidates := unused[layer.kind, layer.shape]:
            weights = candidates.popleft().weights
        else:
            raise _MisfitError(f"no {layer.kind} of shape {list(layer.shape)} for '{layer.name}'")
        own = layer.module.state_dict()
        if layer.kind == CONVOLUTION and "bias" in weights and "bias" not in own:
            shifts[layer.name] = weights.pop("bias")
        if layer.kind == BATCH_NORM and "weight" not in own and not _unscaled(weights):
            raise _MisfitError(f"'{layer.name}' has no scale and bias, but its node does")
        for key, value in own.items():
            if key not in weights or weights[key].shape != value.shape:
                raise _MisfitError(f"nothing fits '{layer.name}.{key}'")
            state[f"{layer.name}.{key}"] = weights[key]
    for name in shifts:
        raise _MisfitError(f"the bias found for '{name}' has no place")
    for node in (left for queue in unused.values() for left in queue):
        raise _MisfitError(
            f"node '{node.name}' is a {node.kind} of shape {list(node.shape)} too many"
        )
    return state


def _pure_shift(shift: Tensor, eps: float) -> State:
    """Batch norm weights that only add `shift`: variance and epsilon are 1 together."""
    return {
        "weight": torch.ones_like(shift),
        "bias": torch.zeros_like(shift),
        "running_mean": -shift,
        "running_var": torch.full_like(shift, 1.0 - eps),
        "num_batches_tracked": torch.tensor(0, device="cpu"),
    }


def _unscaled(weights: State) -> bool:
    return all(weights[k].eq(v).all() for k, v in {"weight": 1, "bias": 0}.items() if k in weights)


@dataclass(frozen=True)
class _Layer:
    """A weight-carrying layer of the module."""

    name: str
    module: WeightedModule
    fed_by: str | None  # the layer whose output is its input, if nothing lies between

    @property
    def kind(self) -> str:
        if isinstance(self.module, nn.Linear):
            return LINEAR if self.module.bias is None else LINEAR_BIAS
        if isinstance(self.module, nn.LayerNorm):
            return LAYER_NORM
        if isinstance(self.module, nn.Conv1d | nn.Conv2d):
            return CONVOLUTION
        return BATCH_NORM

    @property
    def shape(self) -> tuple[int, ...]:
        own = self.module.state_dict()
        return tuple(own["running_mean" if self.kind == BATCH_NORM else "weight"].shape)


def _layers_as_run(module: nn.Module, example: tuple[Tensor, ...]) -> list[_Layer]:
    """The layers of `module` in the order in which it calls them."""
    layers: list[_Layer] = []
    made: list[tuple[Tensor, str]] = []  # holds the tensors, so that each keeps its identity
    names = {part: name for name, part in module.named_modules()}

    def note(part: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if isinstance(part, WeightedModule):
            fed_by = next((maker for tensor, maker in made if tensor is inputs[0]), None)
            layers.append(_Layer(names[part], part, fed_by))
            made.append((output, names[part]))

    hooks = [part.register_forward_hook(note) for part in names]
    try:
        with torch.no_grad():
            module.eval()(*example)
    finally:
        for hook in hooks:
            hook.remove()
    return layers


@dataclass(frozen=True, eq=False)
class _Weighted:
    """A node, or a few that belong together, that does the work of one layer."""

    name: str
    kind: str
    shape: tuple[int, ...]
    weights: State  # by the names that a torch layer gives them


class _Graph:
    """Who makes and who takes each value of an ONNX graph, and which values are constant."""

    def __init__(self, graph: GraphProto, folder: Path) -> None:
        self.nodes = list(graph.node)
        self.folder = folder
        self.initializers = {tensor.name: tensor for tensor in graph.initializer}
        self.maker = {name: node for node in self.nodes for name in node.output}
        self.takers: defaultdict[str, list[NodeProto]] = defaultdict(list)
        for node in self.nodes:
            for name in node.input:
                self.takers[name].append(node)

    def weighted_nodes(self) -> Iterator[_Weighted]:
        """In graph order, which ONNX requires to be an order of execution."""
        for node in self.nodes:
            match node.op_type:
                case "Conv":
                    yield from self._weighted(node, CONVOLUTION, self._inputs(node, 1, 2))
                case "MatMul":
                    yield from self._linear(node, self._inputs(node, 1), transposed=True)
                case "Gemm":
                    transposed = not _attribute(node, "transB", 0)
                    yield from self._linear(node, self._inputs(node, 1, 2), transposed)
                case "LayerNormalization":
                    yield from self._weighted(node, LAYER_NORM, self._inputs(node, 1, 2))
                case "Div":
                    yield from self._decomposed_layer_norm(node)
                case "BatchNormalization":
                    yield from self._weighted(node, BATCH_NORM, self._inputs(node, 1, 2, 3, 4))

    def _weighted(
        self, node: NodeProto, kind: str, constants: list[Array | None]
    ) -> Iterator[_Weighted]:
        names = ("weight", "bias", "running_mean", "running_var")
        weights = {
            name: torch.from_numpy(np.array(constant, np.float32, order="C"))
            for name, constant in zip(names, constants, strict=False)
            if constant is not None
        }
        if "weight" in weights:
            shape = tuple(weights["weight"].shape)
            weights["num_batches_tracked"] = torch.tensor(0, device="cpu")  # inference doesn't ask
            yield _Weighted(node.name, kind, shape, weights)

    def _linear(
        self, node: NodeProto, constants: list[Array | None], transposed: bool
    ) -> Iterator[_Weighted]:
        weight, *biases = constants
        if weight is not None and weight.ndim == 2:
            weight = weight.T if transposed else weight
            bias = biases[0] if biases else self._vector_applied(node, "Add")
            kind = LINEAR if bias is None else LINEAR_BIAS
            yield from self._weighted(node, kind, [weight, bias])

    def _decomposed_layer_norm(self, division: NodeProto) -> Iterator[_Weighted]:
        """(x - mean) / sqrt(variance), then a vector multiplied, then a vector added."""
        root = self.maker.get(division.input[1])
        scaled = self._only_taker(division, "Mul")
        if root is not None and root.op_type == "Sqrt" and scaled is not None:
            vectors = [self._vector_applied(division, "Mul"), self._vector_applied(scaled, "Add")]
            yield from self._weighted(division, LAYER_NORM, vectors)

    def _only_taker(self, node: NodeProto, operation: str) -> NodeProto | None:
        takers = self.takers[node.output[0]]
        return takers[0] if len(takers) == 1 and takers[0].op_type == operation else None

    def _vector_applied(self, node: NodeProto, operation: str) -> Array | None:
        """The constant vector that the only taker of the node's output adds or multiplies."""
        taker = self._only_taker(node, operation)
        constants = [] if taker is None else [self._constant(name) for name in taker.input]
        return next((c for c in constants if c is not None and c.ndim == 1), None)

    def _inputs(self, node: NodeProto, *places: int) -> list[Array | None]:
        return [self._constant(node.input[i]) if i < len(node.input) else None for i in places]

    def _constant(self, name: str) -> Array | None:
        from onnx import numpy_helper

        if name in self.initializers:
            return numpy_helper.to_array(self.initializers[name], str(self.folder))
        node = self.maker.get(name)
        if node is None:
            return None
        if node.op_type == "Constant":
            value = _attribute(node, "value", None)
            return None if value is None else numpy_helper.to_array(value, str(self.folder))
        if node.op_type == "Identity":
            return self._constant(node.input[0])
        if node.op_type == "Transpose":
            array = self._constant(node.input[0])
            return None if array is None else array.transpose(_attribute(node, "perm", None))
        return None


def _attribute(node: NodeProto, name: str, default: Any) -> Any:
    from onnx import helper

    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def _external_locations(message: Any) -> Iterator[str]:
    """Where all tensors of a protobuf message, however deep, say that their data lie."""
    from onnx import TensorProto

    if isinstance(message, TensorProto):
        yield from (entry.value for entry in message.external_data if entry.key == "location")
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in [value] if hasattr(value, "ListFields") else value:
                yield from _external_locations(part)
