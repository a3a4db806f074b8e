from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from cosyserve.models.config import S3Config
from cosyserve.models.encoders.s3 import S3Tokenizer
from tests.checkpoints.onnx.onnx_export import TINY_S3, randomised
from tests.golden.encoders_case import s3_case
from tests.golden.fill import fill

GOLDEN = Path(__file__).parents[2] / "golden"
GOLDEN_CONFIG = {
    "n_audio_state": 128,
    "n_audio_head": 2,
    "n_audio_layer": 2,
    "n_mels": 128,
    "fsmn_kernel": 31,
}
TOLERANCES = {
    "codes": 0,
    "codes_len": 0,
    "pre_quant": 5e-5,
    "hidden": 1e-4,
    "codes_single": 0,
    "round_margin": 5e-6,
}


@pytest.fixture(scope="module")
def tokenizer() -> S3Tokenizer:
    return randomised(S3Tokenizer(TINY_S3))


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_full_size_has_the_published_keys() -> None:
    lines = (GOLDEN / "keys" / "keys_s3tokenizer_v2.tsv").read_text().splitlines()[1:]
    published = {key: shape for key, shape, *_ in (line.split("\t") for line in lines)}
    with torch.device("meta"):
        state = S3Tokenizer(S3Config()).state_dict()
    assert {key: "x".join(map(str, value.shape)) for key, value in state.items()} == published


def test_golden() -> None:
    with np.load(GOLDEN / "s3_tiny.npz") as file:
        golden = dict(file)
    outputs = s3_case(GOLDEN_CONFIG, golden, 0, fill)
    assert outputs.keys() == TOLERANCES.keys()
    for name, tolerance in TOLERANCES.items():
        np.testing.assert_allclose(outputs[name], golden[name], rtol=0, atol=tolerance)


@torch.no_grad()
def test_a_row_does_not_depend_on_its_batch(tokenizer: S3Tokenizer) -> None:
    lengths = torch.tensor([61, 1, 40, 7])
    mel = noise(4, TINY_S3.mels, 61)  # noise past the lengths must not be heard
    hidden, code_lengths = tokenizer.hidden(mel, lengths)
    for row, length in enumerate(lengths):
        alone, (count,) = tokenizer.hidden(mel[row : row + 1, :, :length], length[None])
        assert count == code_lengths[row] == alone.shape[1] == -(-length // 4)
        torch.testing.assert_close(hidden[row, :count], alone[0], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_codes_are_base_three_digits(tokenizer: S3Tokenizer) -> None:
    digits = torch.tensor([[[-9.0, 0, 0, 0, 0, 0, 0, 0], [0, 9, 0, 0, 0, 0, 0, 0], [9] * 8]])
    middle = (3**8 - 1) // 2
    assert tokenizer.codes(digits).tolist() == [[middle - 1, middle + 3, 3**8 - 1]]


@torch.no_grad()
def test_positions_are_not_limited(tokenizer: S3Tokenizer) -> None:
    frames = 4 * 2048 + 40
    codes, _ = tokenizer(noise(1, TINY_S3.mels, frames), torch.tensor([frames]))
    assert codes.shape == (1, 2058)
    assert codes[0, 2048:].unique().numel() > 1


def test_gradients_reach_the_input(tokenizer: S3Tokenizer) -> None:
    mel = noise(1, TINY_S3.mels, 20).requires_grad_()
    hidden, _ = tokenizer.hidden(mel, torch.tensor([20]))
    (gradient,) = torch.autograd.grad(tokenizer.pre_quant(hidden).square().sum(), mel)
    assert gradient.isfinite().all()
    assert gradient.abs().sum() > 0
