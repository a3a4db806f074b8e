"""A draw in one launch: hash, nucleus, repetition-aware second draw, and the update of the row's
line. `lm/draw.py` is its reference and says what the columns of a line are.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_wait

from cosyserve.contracts import MAX_WINDOW
from cosyserve.models.config import LMConfig
from cosyserve.models.kernels import pdl
from cosyserve.models.kernels.launch import launch
from cosyserve.models.kernels.randomness import hash_counter, hash_seed
from cosyserve.models.lm import draw as reference

TOKEN = tl.constexpr(reference.TOKEN)
LENGTH = tl.constexpr(reference.LENGTH)
SEED = tl.constexpr(reference.SEED)
STEP = tl.constexpr(reference.STEP)
ACTIVE = tl.constexpr(reference.ACTIVE)
MIN_TOKENS = tl.constexpr(reference.MIN_TOKENS)
TOP_K = tl.constexpr(reference.TOP_K)
WINDOW = tl.constexpr(reference.WINDOW)
FORBIDDEN = tl.constexpr(reference.FORBIDDEN)
HISTORY = tl.constexpr(reference.HISTORY)
INTS = tl.constexpr(reference.INTS)
TOP_P = tl.constexpr(reference.TOP_P)
MAX_REPEATS = tl.constexpr(reference.MAX_REPEATS)
SCALE = tl.constexpr(reference.SCALE)
FLOATS = tl.constexpr(reference.FLOATS)
OTHERS = tl.constexpr(reference.OTHERS)
WARPS = 16


@triton.jit
def _uniform(seed, step, number):
    """As `randomness.uniform`."""
    bits = hash_counter(hash_counter(hash_seed(seed), step), number)
    return bits.to(tl.float64) / 4294967296.0


@triton.jit
def _highest(key, count, scratch, max_top_k: tl.constexpr, block: tl.constexpr):
    """The highest `count` of the keys [block], in falling order, then others:
    [max_top_k].

    Of the highest keys of `max_top_k` groups, the count-th is no higher than the count-th of all
    keys: what is below it is not looked at. That mostly leaves few enough to be sorted.
    """
    rank = tl.arange(0, max_top_k)
    groups = tl.sort(tl.max(tl.reshape(key, (block // max_top_k, max_top_k)), 0), descending=True)
    threshold = tl.max(tl.where(rank == count - 1, groups, -1), 0)
    candidate = (key >= threshold).to(tl.int32)
    left = tl.sum(candidate, 0)
    if left <= max_top_k:
        tl.store(scratch + tl.cumsum(candidate, 0) - 1, key, mask=candidate != 0)
        tl.debug_barrier()
        top = tl.sort(tl.load(scratch + rank, mask=rank < left, other=0), descending=True)
    else:
        top = tl.zeros((max_top_k,), tl.int64)
        for size in range(count):
            best = tl.max(key, 0)
            key = tl.where(key == best, -1, key)
            top = tl.where(rank == size, best, top)
    return top


@triton.jit
def _draw(
    logits,
    ints,
    floats,
    outcome,
    slots,
    scratch,
    classes,
    speech_tokens,
    text_vocab,
    elsewhere: tl.constexpr,
    window: tl.constexpr,
    max_top_k: tl.constexpr,
    pdl: tl.constexpr,
    block: tl.constexpr,
):
    if pdl:
        gdc_wait()  # none may begin early behind it: launches of the next step read a row's length
    row = tl.program_id(0)
    slot = row.to(tl.int64)
    if elsewhere:
        slot = tl.load(slots + row)
    line = ints + slot * INTS
    step = tl.load(line + STEP)
    seed = tl.load(line + SEED)
    scale = tl.load(floats + slot * FLOATS + SCALE).to(tl.float32)
    ids = tl.arange(0, block)
    there = ids < classes
    x = tl.load(logits + row * classes + ids, mask=there, other=float("-inf"))
    finite = (x > float("-inf")) & (x < float("inf"))
    broken = tl.sum(tl.where(there & (finite == 0), 1, 0), 0)
    highest = tl.max(x, 0)
    partition = highest + tl.log(tl.sum(tl.exp(x - highest), 0))
    raw = x
    special = ids - speech_tokens
    place_of_bit = tl.minimum(tl.maximum(special, 0), OTHERS).to(tl.int64)
    bit = (tl.load(line + FORBIDDEN) >> place_of_bit) & 1
    early = step < tl.load(line + MIN_TOKENS)
    forbidden = (special >= 0) & ((bit != 0) | early)
    x = tl.where(there & (forbidden == 0), x * scale, float("-inf"))

    # Non-negative floats order like their bits; of equals, the lower id goes first.
    weight = tl.exp(x - tl.max(x, 0))
    prob = weight / tl.sum(weight, 0)
    key = prob.to(tl.int32, bitcast=True).to(tl.int64) * block + (block - 1 - ids)
    key = tl.where(there, key, -1)
    top_k = tl.load(line + TOP_K).to(tl.int32)
    top_p = tl.load(floats + slot * FLOATS + TOP_P)
    rank = tl.arange(0, max_top_k)
    best = _highest(key, top_k, scratch + row * max_top_k, max_top_k, block)
    chosen = block - 1 - best % block
    share = (best // block).to(tl.int32).to(tl.float32, bitcast=True).to(tl.float64)
    share = tl.where(rank < top_k, share, 0.0)
    share = tl.where(tl.cumsum(share, 0) - share < top_p, share, 0.0)
    mass = tl.cumsum(share, 0)
    above = mass > _uniform(seed, step, 0) * tl.max(mass, 0)
    pick = tl.min(tl.where(above, rank, max_top_k), 0)
    pick = tl.where(pick == max_top_k, 0, pick)
    token = tl.sum(tl.where(rank == pick, chosen, 0), 0)

    place = tl.arange(0, window)
    seen = tl.load(line + HISTORY + place)
    age = (step + (window - 1 - place)) % window
    recent = tl.load(line + WINDOW)
    repeats = tl.sum(tl.where((seen == token) & (age < recent), 1, 0), 0)
    limit = recent.to(tl.float64) * tl.load(floats + slot * FLOATS + MAX_REPEATS)
    if repeats.to(tl.float64) >= limit:
        x = tl.where(ids == token, float("-inf"), x)
        weight = tl.exp(x - tl.max(x, 0))
        total = tl.cumsum((weight / tl.sum(weight, 0)).to(tl.float64), 0)
        beyond = total > _uniform(seed, step, 1) * tl.max(total, 0)
        other = tl.min(tl.where(beyond & there, ids, block), 0)
        token = tl.where(other == block, 0, other).to(tl.int64)

    score = tl.sum(tl.where(ids == token, raw, 0.0), 0) - partition
    reported = tl.where(broken > 0, -1, token).to(tl.float64)
    tl.store(outcome + slot * 2, reported)
    tl.store(outcome + slot * 2 + 1, score.to(tl.float64))
    if tl.load(line + ACTIVE) != 0:
        tl.store(line + HISTORY + step % window, token)
        tl.store(line + TOKEN, text_vocab + token)
        tl.store(line + STEP, step + 1)
        if not elsewhere:
            tl.store(line + LENGTH, tl.load(line + LENGTH) + 1)


def draw(
    logits: Tensor,
    ints: Tensor,
    floats: Tensor,
    outcome: Tensor,
    slots: Tensor | None,
    config: LMConfig,
    max_top_k: int,
) -> None:
    """Row b of float32 logits [B, classes] belongs to line slots[b], or to line b; then it was fed
    one position, and its length grows. Writes what `draw.draw` returns to the same line of
    `outcome`."""
    block, max_top_k = triton.next_power_of_2(config.classes), triton.next_power_of_2(max_top_k)
    scratch = torch.empty(len(logits), max_top_k, dtype=torch.long, device=logits.device)
    launch(
        _draw,
        (len(logits),),
        logits=logits,
        ints=ints,
        floats=floats,
        outcome=outcome,
        slots=ints if slots is None else slots,
        scratch=scratch,
        classes=config.classes,
        speech_tokens=config.speech_tokens,
        text_vocab=config.text_vocab,
        elsewhere=slots is not None,
        window=MAX_WINDOW,
        max_top_k=max_top_k,
        pdl=pdl(logits),
        block=block,
        num_warps=WARPS if block > 2048 else 4,
        launch_pdl=pdl(logits),
    )
