"""The graph of the speaker encoder, and a speaker encoder that another runtime computes.

Names are those of the published campplus.onnx.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from cosyserve.backends.estimators.engine_file import digest
from cosyserve.backends.estimators.graphs import FRAMES, ROWS, NetworkGraph, ShapeProfile, Sizes
from cosyserve.checkpoints.model import Model
from cosyserve.contracts import Floats
from cosyserve.models.encoders.campplus import CamPlus
from cosyserve.models.encoders.prompt_encoders import TorchSpeakerEncoder
from cosyserve.models.flow.foreign import Graph

SPEAKER = "speaker"
SPEAKER_PRECISION = "float32"  # its sums over 30 s may be too large for float16
# Recordings have 30 s at most, of 100 frames each. Two seldom have the same length, and a context
# has memory for the largest call: so one at a time.
SPEAKER_SHAPES = ShapeProfile(Sizes(1, 4), Sizes(1, 500), Sizes(1, 3000))


class SpeakerGraph(NetworkGraph):
    @staticmethod
    def too_long(frames: int, most: int) -> str:
        return (
            f"the recording has {frames} frames of 10 ms, the speaker encoder's engine takes "
            f"{most}: cut it"
        )


class _Rows(nn.Module):
    """Rows of one length, whose frames all count."""

    def __init__(self, encoder: CamPlus) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, fbank: Tensor) -> tuple[Tensor]:
        return (self.encoder(fbank),)


def speaker_graphs(model: Model) -> list[NetworkGraph]:
    """The graph of a model's speaker encoder; there is none of one whose weights torch has not."""
    encoder, config = model.speaker_encoder, model.config.speaker_encoder
    if not isinstance(encoder, TorchSpeakerEncoder) or config is None:
        return []
    network = copy.deepcopy(encoder.module).to("cpu", torch.float32)
    graph = SpeakerGraph(
        SPEAKER,
        digest(network, config),
        _Rows(network).eval(),  # the exporter leaves a network's parts in the mode of the whole
        {"input": (ROWS, FRAMES, config.feat)},
        {"output": (ROWS, config.embedding)},
    )
    return [graph]


class ForeignSpeakerEncoder:
    """A `SpeakerEncoder` whose network another runtime computes."""

    def __init__(self, graph: Graph, device: torch.device | None) -> None:
        self._graph, self._device = graph, device

    def __call__(self, fbank: Floats) -> Floats:
        return self.batch([fbank])[0]

    def batch(self, fbanks: Sequence[Floats]) -> list[Floats]:
        """One by one unless all are of one length: the graph knows no lengths."""
        if len({len(fbank) for fbank in fbanks}) > 1:
            return [self(fbank) for fbank in fbanks]
        rows = torch.from_numpy(np.stack(fbanks)).to(self._device)
        (embeddings,) = self._graph({"input": rows})
        return list(embeddings.float().cpu().numpy())
