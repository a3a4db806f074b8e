from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cosyserve.contracts import MAX_TEMPERATURE, MIN_TEMPERATURE, Sampling
from cosyserve.errors import InputError
from cosyserve.models.lm.sampling import Rules, nucleus, sample

CLASSES = 12


def reference(logits: np.ndarray, history: list[int], u1: float, u2: float, s: Sampling) -> int:
    """The rule, one row, in plain Python."""
    logits = logits / np.float32(s.temperature)
    probs = np.exp(logits - logits.max())
    probs /= probs.sum()
    order = sorted(range(len(probs)), key=lambda i: (-probs[i], i))
    kept: list[int] = []
    mass = 0.0
    for i in order:
        if mass >= s.top_p or len(kept) == s.top_k:
            break
        kept.append(i)
        mass += probs[i]

    def draw(ids: list[int], weights: np.ndarray, u: float) -> int:
        edges = np.cumsum(weights.astype(np.float64))
        return ids[int(np.argmax(edges > u * edges[-1]))]

    first = draw(kept, probs[kept], u1)
    if history[-s.window :].count(first) < s.window * s.max_repeats:
        return first
    logits = logits.copy()
    logits[first] = -np.inf
    others = np.exp(logits - logits.max())
    return draw(list(range(len(others))), others / others.sum(), u2)


rows = st.lists(st.sampled_from([-3.0, -1.0, 0.0, 0.5, 2.0]), min_size=CLASSES, max_size=CLASSES)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(rows, min_size=1, max_size=4),
    st.lists(st.integers(0, CLASSES - 1), max_size=14),
    st.floats(0, 0.999),
    st.floats(0, 0.999),
    st.integers(1, CLASSES),
    st.sampled_from([0.25, 0.7, 1.0, 1.3, 2.0]),
)
def test_the_batch_follows_the_rule_row_by_row(
    batch: list[list[float]],
    history: list[int],
    u1: float,
    u2: float,
    top_k: int,
    temperature: float,
) -> None:
    sampling = Sampling(top_k=top_k, temperature=temperature)
    logits = torch.tensor(batch)
    padded = torch.tensor([[-1] * 14 + history])[:, -14:].expand(len(batch), -1)
    draws = torch.full((len(batch),), u1), torch.full((len(batch),), u2)
    allowed = torch.zeros(CLASSES, dtype=torch.bool)
    rules = Rules.of([sampling] * len(batch))
    actual = sample(logits, padded, *draws, allowed, rules, CLASSES).ids.tolist()
    expected = [reference(np.array(row, np.float32), history, u1, u2, sampling) for row in batch]
    # A draw within rounding of an edge may fall on either side.
    near = [
        any(
            reference(np.array(row, np.float32), history, u1 + a, u2 + b, sampling) == got
            for a in (-1e-6, 1e-6)
            for b in (-1e-6, 1e-6)
        )
        for row, got in zip(batch, actual, strict=True)
    ]
    assert all(g == w or n for g, w, n in zip(actual, expected, near, strict=True))


def test_equal_probabilities_keep_the_order_of_their_ids() -> None:
    actual = nucleus(torch.full((1, 8), 0.125), Rules.of([Sampling(top_k=3)]), 3)
    assert actual.ids.tolist() == [[0, 1, 2]]


def test_the_id_that_crosses_top_p_is_included() -> None:
    actual = nucleus(torch.tensor([[0.5, 0.25, 0.2, 0.05]]), Rules.of([Sampling(top_p=0.7)]), 25)
    assert actual.size.tolist() == [2]


def test_forbidden_ids_are_never_drawn() -> None:
    logits = torch.zeros(200, 4)
    logits[:, 0] = 9.0
    forbidden = torch.tensor([True, False, False, False])
    u = torch.rand(200, generator=torch.Generator().manual_seed(0))
    history = torch.full((200, 10), -1)
    rules = Rules.of([Sampling()] * 200)
    assert 0 not in sample(logits, history, u, u, forbidden, rules, 25).ids.tolist()


def test_rows_with_rules_of_their_own_draw_as_they_would_alone() -> None:
    random = torch.Generator().manual_seed(0)
    rules = [
        *(Sampling(0.5, 3), Sampling(0.9, 9, 4, 0.3), Sampling(1.0, 12, 14, 0.05)),
        *(Sampling(0.9, 9, 4, 0.3, 0.4), Sampling(1.0, 12, 14, 0.05, 1.8)),
    ] * 24
    logits = torch.randn(len(rules), CLASSES, generator=random)
    history = torch.randint(0, CLASSES, (len(rules), 14), generator=random)
    u1, u2 = torch.rand(2, len(rules), generator=random)
    allowed = torch.zeros(CLASSES, dtype=torch.bool)
    together = sample(logits, history, u1, u2, allowed, Rules.of(rules), CLASSES).ids.tolist()
    alone = [
        int(
            sample(
                logits[i : i + 1],
                history[i : i + 1],
                u1[i : i + 1],
                u2[i : i + 1],
                allowed,
                Rules.of([rule]),
                rule.top_k,
            ).ids
        )
        for i, rule in enumerate(rules)
    ]
    assert together == alone


@settings(max_examples=40, deadline=None)
@given(rows, st.floats(MIN_TEMPERATURE, MAX_TEMPERATURE), st.floats(0.1, 1.0), st.booleans())
def test_uniforms_spread_evenly_draw_the_softmax_of_logits_over_the_temperature(
    row: list[float], temperature: float, top_p: float, again: bool
) -> None:
    """The first draw of its nucleus, the second of all ids but the first."""
    count = 4000
    sampling = Sampling(top_p, CLASSES, 1, 0.0 if again else 2.0, temperature)
    evenly, first = (torch.arange(count) + 0.5) / count, torch.zeros(count)
    uniforms = (first, evenly) if again else (evenly, first)
    drawn = sample(
        torch.tensor([row]).expand(count, -1),
        torch.full((count, 1), -1),
        *uniforms,
        torch.zeros(CLASSES, dtype=torch.bool),
        Rules.of([sampling]),
        CLASSES,
    )
    probs = (torch.tensor(row).double() / temperature).softmax(-1)
    if again:
        probs[drawn.first[0]] = 0.0
    else:
        order = probs.argsort(descending=True, stable=True)
        before = probs[order].cumsum(0) - probs[order]
        # Where the mass before an id is top_p within rounding, the id may be in or out.
        assume(((before - top_p).abs() > 1e-5).all())
        probs[order[before >= top_p]] = 0.0
    shares = torch.bincount(drawn.ids, minlength=CLASSES) / count
    assert (shares - probs / probs.sum()).abs().max() <= 1.1 / count


def test_the_colder_the_likelier_the_likeliest() -> None:
    random = torch.Generator().manual_seed(0)
    logits = torch.randn(500, CLASSES, generator=random)
    temperatures = (2.0, 1.0, 0.5, 0.1, 0.01)
    shares = []
    for temperature in temperatures:
        rules = Rules.of([Sampling(1.0, CLASSES, max_repeats=2.0, temperature=temperature)])
        u, history = torch.rand(500, generator=random), torch.full((500, 1), -1)
        allowed = torch.zeros(CLASSES, dtype=torch.bool)
        drawn = sample(logits, history, u, u, allowed, rules, CLASSES).ids
        shares.append(float((drawn == logits.argmax(-1)).double().mean()))
    assert shares == sorted(shares)
    assert shares[0] < 0.5
    assert shares[-1] > 0.98


@pytest.mark.parametrize("temperature", [0.0, -1.0, 0.009, 2.1, float("nan"), float("inf")])
def test_a_temperature_out_of_range_is_refused(temperature: float) -> None:
    with pytest.raises(InputError, match=r"temperature must be 0\.01\.\.2"):
        Sampling(temperature=temperature)
