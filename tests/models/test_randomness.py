from __future__ import annotations

import numpy as np
import torch

from cosyserve.models.randomness import hash32, normal, uniform


def test_numbers_depend_on_the_counters_alone() -> None:
    seed = torch.tensor([7, 8, 7])
    alone = [uniform(seed[i : i + 1], 5, 1).item() for i in range(3)]
    assert uniform(seed, 5, 1).tolist() == alone
    assert alone[0] == alone[2] != alone[1]


def test_numbers_of_the_host_are_those_of_the_device() -> None:
    for seed in (0, 42, (1 << 62) + 12345):
        assert hash32(seed, 7, 1) == hash32(torch.tensor(seed), torch.tensor(7), 1).item()


FIRST_UNIFORMS = [0.087109, 0.226746, 0.704226, 0.039846]


def test_this_sequence_never_changes() -> None:
    """A released seed must keep its speech."""
    actual = [uniform(torch.tensor(42), step, draw).item() for step in (0, 1) for draw in (0, 1)]
    assert np.round(actual, 6).tolist() == FIRST_UNIFORMS


def test_uniforms_are_uniform_and_uncorrelated() -> None:
    seeds = torch.arange(200)[:, None]
    u = uniform(seeds, torch.arange(500), 0).numpy()
    assert abs(u.mean() - 0.5) < 0.003
    assert abs(u.var() - 1 / 12) < 0.002
    counts = np.histogram(u, bins=64, range=(0, 1))[0]
    expected = u.size / 64
    assert ((counts - expected) ** 2 / expected).sum() < 110  # 63 degrees of freedom, p < 0.0002
    for other in (u[:, 1:], uniform(seeds, torch.arange(500), 1).numpy()[:, :-1]):
        assert abs(np.corrcoef(u[:, :-1].ravel(), other.ravel())[0, 1]) < 0.01
    assert abs(np.corrcoef(u[:-1].ravel(), u[1:].ravel())[0, 1]) < 0.01


def test_seeds_beyond_32_bits_differ() -> None:
    seeds = torch.tensor([1, 1 + 2**32, 1 + 2**62])
    assert len(set(hash32(seeds, 0).tolist())) == 3


def test_normals_are_normal_and_belong_to_their_index() -> None:
    seed = torch.tensor([3])
    x = normal(seed[:, None], torch.arange(40_000)[None], 9)
    assert x.shape == (1, 40_000, 9)
    assert abs(x.mean()) < 0.01
    assert abs(x.std() - 1) < 0.01
    assert abs((x**4).mean() - 3) < 0.1
    later = normal(seed[:, None], torch.arange(1000, 1010)[None], 9)
    assert torch.equal(later, x[:, 1000:1010])
    between = np.corrcoef(x[0].numpy().T) - np.eye(9)
    assert np.abs(between).max() < 0.03
