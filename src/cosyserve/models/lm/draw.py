"""Drawing step by step: the state of a row is a line of numbers, which each draw updates.

Lines stay on the device, so that one draw follows the other without waiting for the host;
`kernels/draw.py` is the same in one launch.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from cosyserve.contracts import MAX_WINDOW, Sampling
from cosyserve.models.config import LMConfig
from cosyserve.models.lm.sampling import Rules, sample
from cosyserve.models.randomness import uniform

# Columns of a line's integers: the id that is fed next (of the LM's vocabulary), positions in the
# cache, seed, number of the draw, whether the row goes on (1) or is only computed beside others
# (0), draws before an end is allowed, rules of sampling, a bit for each forbidden id behind the
# speech tokens (from OTHERS on they share one), and the ids drawn last: draw n at n % MAX_WINDOW.
TOKEN, LENGTH, SEED, STEP, ACTIVE, MIN_TOKENS, TOP_K, WINDOW, FORBIDDEN, HISTORY = range(10)
INTS = HISTORY + MAX_WINDOW
TOP_P, MAX_REPEATS, SCALE = range(3)  # columns of its floats
FLOATS = 3
OTHERS = 4


def draw(logits: Tensor, ints: Tensor, floats: Tensor, config: LMConfig, max_top_k: int) -> Tensor:
    """One id per row, of logits [B, classes] and lines ints [B, INTS], floats [B, FLOATS].

    -> float64 [B, 2]: the id (-1: the logits are no numbers) and its log-probability.
    `max_top_k` is at least the largest top_k. The caller updates the lengths.
    """
    device = logits.device
    seeds, steps, history = ints[:, SEED], ints[:, STEP], ints[:, HISTORY:]
    newest_last = (steps[:, None] + torch.arange(MAX_WINDOW, device=device)) % MAX_WINDOW
    forbidden = torch.zeros_like(logits, dtype=torch.bool)
    bit = torch.arange(len(config.control), device=device).clamp(max=OTHERS)
    never = (ints[:, FORBIDDEN, None] >> bit & 1).bool()
    early = (steps < ints[:, MIN_TOKENS])[:, None]
    forbidden[:, config.speech_tokens :] = never | early
    rules = Rules(
        *(floats[:, TOP_P], ints[:, TOP_K], ints[:, WINDOW]),
        *(floats[:, MAX_REPEATS], floats[:, SCALE]),
    )
    u1, u2 = uniform(seeds, steps, 0), uniform(seeds, steps, 1)
    ids = sample(logits, history.gather(1, newest_last), u1, u2, forbidden, rules, max_top_k).ids
    score = logits.gather(1, ids[:, None])[:, 0] - logits.logsumexp(-1)
    sane = logits.isfinite().all(-1)
    active = ints[:, ACTIVE].bool()
    at = (steps % MAX_WINDOW)[:, None]
    history.scatter_(1, at, torch.where(active[:, None], ids[:, None], history.gather(1, at)))
    ints[:, TOKEN] = torch.where(active, config.text_vocab + ids, ints[:, TOKEN])
    ints[:, STEP] += ints[:, ACTIVE]
    return torch.stack((torch.where(sane, ids, -1).double(), score.double()), dim=1)


def float_rules(sampling: Sampling) -> tuple[float, float, float]:
    """The floats of a line."""
    return sampling.top_p, sampling.max_repeats, 1 / sampling.temperature


def forbidden_bits(config: LMConfig, forbidden: Iterable[int]) -> int:
    """What a line says of forbidden control ids; those from OTHERS on are all forbidden or none."""
    bits = 0
    for id_ in forbidden:
        bits |= 1 << min(id_ - config.speech_tokens, OTHERS)
    return bits
