"""Prompt encoders as ONNX files laid out like the published ones, and tiny ones to export.

Knows no published weights: it exports the module it is given.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from cosyserve.models.config import CamPlusConfig, S3Config
from cosyserve.models.encoders.campplus import HEAD_SHRINKING, CamPlus
from cosyserve.models.encoders.s3 import S3Tokenizer

TINY_S3 = S3Config(mels=16, state=32, heads=2, layers=2, fsmn_kernel=5)
TINY_CAMPLUS = CamPlusConfig(
    feat=16,
    embedding=12,
    head_channels=4,
    init_channels=8,
    growth=4,
    bn_size=2,
    block_layers=(2, 3, 2),
    segment=10,
)

Network = TypeVar("Network", bound=nn.Module)


def randomised(module: Network, seed: int = 0) -> Network:
    """The module with weights under which every layer, norms included, makes a difference."""
    random = torch.Generator().manual_seed(seed)
    state = module.state_dict()
    for key, value in state.items():
        if value.is_floating_point():
            noise = torch.rand(value.shape, generator=random) - 0.5
            scale = 1.0 if value.ndim == 1 else value[0].numel() ** -0.5 * 3.0
            centred_on_one = key.endswith("running_var") or (
                value.ndim == 1 and key.endswith("weight")
            )
            value.copy_(float(centred_on_one) + noise * scale)
    module.load_state_dict(state)
    return module.eval()


class _CodesOnly(nn.Module):
    """The published tokenizer file has one output."""

    def __init__(self, tokenizer: S3Tokenizer) -> None:
        super().__init__()
        self.tokenizer = tokenizer

    def forward(self, mel: Tensor, lengths: Tensor) -> Tensor:
        codes: Tensor = self.tokenizer(mel, lengths)[0]
        return codes


def export_s3(module: S3Tokenizer, path: Path, opset: int = 17, optimise: bool = True) -> None:
    """Inputs `feats` [1, mels, T] and `feats_length` int32 [1], output `indices` [1, L].

    Below opset 17, layer norms are decomposed.
    """
    mel = torch.zeros(1, module.encoder.conv1.in_channels, 40)
    example = {"feats": mel, "feats_length": torch.tensor([40], dtype=torch.int32)}
    _export(_CodesOnly(module), example, "indices", {"feats": {2: "T"}}, path, opset, optimise)


def export_campplus(module: CamPlus, path: Path, opset: int = 13, optimise: bool = True) -> None:
    """Input `input` [1, T, feat], output `output` [1, embedding]."""
    rows = module.xvector.tdnn.linear.in_channels // module.head.conv1.out_channels
    example = {"input": torch.zeros(1, 40, rows * HEAD_SHRINKING)}
    _export(module, example, "output", {"input": {1: "T"}}, path, opset, optimise)


def _export(
    module: nn.Module,
    example: dict[str, Tensor],
    output: str,
    dynamic_axes: dict[str, dict[int, str]],
    path: Path,
    opset: int,
    optimise: bool,
) -> None:
    """`optimise` folds batch norms into convolutions and transposes linear weights at once."""
    mode = torch.onnx.TrainingMode
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter of the published files is deprecated
        torch.onnx.export(
            module.eval(),
            tuple(example.values()),
            str(path),
            input_names=list(example),
            output_names=[output],
            dynamic_axes=dynamic_axes,
            opset_version=opset,
            dynamo=False,
            training=mode.EVAL if optimise else mode.PRESERVE,
            do_constant_folding=optimise,
        )
