"""Repetition-aware nucleus sampling, vectorised over a batch.

Knows no model: logits, the last ids and two uniforms in, one id per row out. No Python branch
depends on data, so it can run inside a CUDA graph.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from cosyserve.contracts import Sampling


class Nucleus(NamedTuple):
    ids: Tensor  # [B, k], by falling probability; entries past `size` are not in the nucleus
    probs: Tensor  # [B, k]
    size: Tensor  # [B]


class Draw(NamedTuple):
    ids: Tensor  # [B]
    first: Tensor  # [B] the nucleus' choice
    repeats: Tensor  # [B] how often that choice stands in the history window


def nucleus(probs: Tensor, sampling: Sampling) -> Nucleus:
    """The most likely ids until their mass reaches top_p (the one that crosses it included).

    Equal probabilities keep the order of their ids: the sort key is (bits of p, -id) in one
    integer, since non-negative floats order like their bits.
    """
    classes = probs.shape[-1]
    rank = torch.arange(classes - 1, -1, -1, device=probs.device)
    key = probs.float().view(torch.int32).long() * classes + rank
    top = key.topk(min(sampling.top_k, classes), dim=-1).values
    ids = classes - 1 - top % classes
    chosen = probs.gather(-1, ids)
    before = chosen.double().cumsum(-1) - chosen.double()
    return Nucleus(ids, chosen, (before < sampling.top_p).sum(-1))


def sample(
    logits: Tensor, history: Tensor, u1: Tensor, u2: Tensor, forbidden: Tensor, sampling: Sampling
) -> Draw:
    """One id per row.

    logits [B, V]; history [B, >= window] generated ids, newest last, -1 = none; u1, u2 [B]
    uniforms; forbidden [B, V] or [V] bool: ids that must not be drawn.
    """
    logits = logits.masked_fill(forbidden, float("-inf"))
    found = nucleus(logits.softmax(-1), sampling)
    inside = torch.arange(found.ids.shape[-1], device=logits.device) < found.size[:, None]
    pick = _inverse_cdf(found.probs * inside, u1)
    first = found.ids.gather(-1, pick[:, None])
    repeats = (history[:, -sampling.window :] == first).sum(-1)
    others = logits.scatter(-1, first, float("-inf")).softmax(-1)
    again = repeats >= sampling.window * sampling.max_repeats
    ids = torch.where(again, _inverse_cdf(others, u2), first[:, 0])
    return Draw(ids, first[:, 0], repeats)


def _inverse_cdf(weights: Tensor, u: Tensor) -> Tensor:
    """The first index whose cumulated weight exceeds u of the total: weights [B, n], u [B]."""
    total = weights.double().cumsum(-1)
    above = total > u.double()[:, None] * total[:, -1:]
    return above.to(torch.int8).argmax(-1)
