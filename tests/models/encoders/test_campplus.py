from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from cosyserve.models.config import CamPlusConfig
from cosyserve.models.encoders.campplus import CamPlus
from tests.checkpoints.onnx.onnx_export import TINY_CAMPLUS, randomised
from tests.golden.encoders_case import campplus_case
from tests.golden.fill import fill

GOLDEN = Path(__file__).parents[2] / "golden"
TOLERANCES = {"y0": 1e-4, "y1": 5e-5, "head0": 2e-4}


@pytest.fixture(scope="module")
def encoder() -> CamPlus:
    return randomised(CamPlus(TINY_CAMPLUS))


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def test_full_size_has_the_published_keys() -> None:
    lines = (GOLDEN / "keys" / "keys_campplus.tsv").read_text().splitlines()[1:]
    published = {key: shape for key, shape, *_ in (line.split("\t") for line in lines)}
    with torch.device("meta"):
        state = CamPlus(CamPlusConfig()).state_dict()
    assert {key: "x".join(map(str, value.shape)) for key, value in state.items()} == published


def test_golden() -> None:
    with np.load(GOLDEN / "campplus_full.npz") as file:
        golden = dict(file)
    outputs = campplus_case({"feat": 80, "emb": 192}, golden, 0, fill)
    assert outputs.keys() == TOLERANCES.keys()
    for name, tolerance in TOLERANCES.items():
        np.testing.assert_allclose(outputs[name], golden[name], rtol=0, atol=tolerance)


@torch.no_grad()
def test_a_row_does_not_depend_on_its_batch(encoder: CamPlus) -> None:
    lengths = torch.tensor([93, 40, 41, 3])  # whole segments, one frame more, and less than one
    fbank = noise(4, 93, TINY_CAMPLUS.feat)  # noise past the lengths must not be heard
    together = encoder(fbank, lengths)
    for row, length in enumerate(lengths):
        alone = encoder(fbank[row : row + 1, :length])
        torch.testing.assert_close(together[row], alone[0], rtol=1e-4, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("frames", [1, 2, 3])
def test_the_shortest_inputs_give_numbers(encoder: CamPlus, frames: int) -> None:
    assert encoder(noise(1, frames, TINY_CAMPLUS.feat)).isfinite().all()
