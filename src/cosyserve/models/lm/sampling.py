"""Repetition-aware nucleus sampling, vectorised over a batch.

Logits, the last ids and two uniforms in, one id per row out. Each row has rules of its own. No
Python branch depends on data, so it can run inside a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from cosyserve.contracts import Sampling


class Rules(NamedTuple):
    """`Sampling` of every row: [B] each."""

    top_p: Tensor
    top_k: Tensor
    window: Tensor
    max_repeats: Tensor
    scale: Tensor  # of logits: 1 / temperature

    @classmethod
    def of(cls, rows: Sequence[Sampling]) -> Rules:
        return cls(
            torch.tensor([row.top_p for row in rows], dtype=torch.float64),
            torch.tensor([row.top_k for row in rows]),
            torch.tensor([row.window for row in rows]),
            torch.tensor([row.max_repeats for row in rows], dtype=torch.float64),
            torch.tensor([1 / row.temperature for row in rows], dtype=torch.float64),
        )


class Nucleus(NamedTuple):
    ids: Tensor  # [B, k], by falling probability; entries past `size` are not in the nucleus
    probs: Tensor  # [B, k]
    size: Tensor  # [B]


class Draw(NamedTuple):
    ids: Tensor  # [B]
    first: Tensor  # [B] the nucleus' choice
    repeats: Tensor  # [B] how often that choice stands in the history window


def nucleus(probs: Tensor, rules: Rules, max_top_k: int) -> Nucleus:
    """The most likely ids until their mass reaches top_p (the one that crosses it included).

    `max_top_k` is at least the largest top_k. Equal probabilities keep the order of their ids: the
    sort key is (bits of p, -id) in one integer, since non-negative floats order like their bits.
    """
    classes = probs.shape[-1]
    rank = torch.arange(classes - 1, -1, -1, device=probs.device)
    key = probs.float().view(torch.int32).long() * classes + rank
    top = key.topk(min(max_top_k, classes), dim=-1).values
    ids = classes - 1 - top % classes
    chosen = probs.gather(-1, ids)
    before = chosen.double().cumsum(-1) - chosen.double()
    in_top_k = torch.arange(ids.shape[-1], device=probs.device) < rules.top_k[:, None]
    return Nucleus(ids, chosen, (in_top_k & (before < rules.top_p[:, None])).sum(-1))


def sample(
    logits: Tensor,
    history: Tensor,
    u1: Tensor,
    u2: Tensor,
    forbidden: Tensor,
    rules: Rules,
    max_top_k: int,
) -> Draw:
    """One id per row.

    logits [B, V]; history [B, >= window] generated ids, newest last, -1 = none; u1, u2 [B]
    uniforms; forbidden [B, V] or [V] bool: ids that must not be drawn; `max_top_k` as of `nucleus`.
    """
    scale = rules.scale[:, None].to(logits.dtype)
    logits = (logits * scale).masked_fill(forbidden, float("-inf"))
    likely = nucleus(logits.softmax(-1), rules, max_top_k)
    inside = torch.arange(likely.ids.shape[-1], device=logits.device) < likely.size[:, None]
    pick = _inverse_cdf(likely.probs * inside, u1)
    first = likely.ids.gather(-1, pick[:, None])
    age = torch.arange(history.shape[1] - 1, -1, -1, device=logits.device)
    repeats = ((history == first) & (age < rules.window[:, None])).sum(-1)
    others = logits.scatter(-1, first, float("-inf")).softmax(-1)
    again = repeats >= rules.window * rules.max_repeats
    ids = torch.where(again, _inverse_cdf(others, u2), first[:, 0])
    return Draw(ids, first[:, 0], repeats)


def _inverse_cdf(weights: Tensor, u: Tensor) -> Tensor:
    """The first index whose cumulated weight exceeds u of the total: weights [B, n], u [B]."""
    total = weights.double().cumsum(-1)
    above = total > u.double()[:, None] * total[:, -1:]
    return above.to(torch.int8).argmax(-1)
