"""A stream of mel frames is what the same chunk-masked model gives for the whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyserve.errors import InputError
from cosyserve.models.config import (
    DiTConfig,
    EncoderConfig,
    FlowConfig,
    LookaheadConfig,
    RotaryDiTConfig,
    UNetConfig,
)
from cosyserve.models.flow.cfm import fixed_noise, schedule
from cosyserve.models.flow.encoder import encode_distances, shift
from cosyserve.models.flow.flow import Flow
from cosyserve.models.flow.masks import attention_bias
from cosyserve.models.flow.stream import FlowPrompt, FlowState
from tests.golden.fill import fill
from tests.golden.weights import filled_flow

ENCODER = EncoderConfig(32, 2, 48, 2, 1)
UNET = FlowConfig(ENCODER, UNetConfig("unet", 16, 2, 8, 1, 1), speech_tokens=50, steps=3)
DIT = replace(UNET, estimator=DiTConfig("dit", 32, 2, 2, 16, 2.0, 64, history=30))
ROTARY = replace(
    UNET,
    encoder=LookaheadConfig(channels=24),
    estimator=RotaryDiTConfig(hidden=32, depth=2, heads=2, head_dim=16),
)


@pytest.fixture(scope="module")
def unet() -> Flow:
    return filled_flow(UNET, 0, fill).requires_grad_(False)


@pytest.fixture(scope="module")
def rotary() -> Flow:
    return filled_flow(ROTARY, 0, fill).requires_grad_(False)


@pytest.fixture(scope="module")
def dit() -> Flow:
    return filled_flow(DIT, 0, fill).requires_grad_(False)


def prompt(tokens: int, seed: int = 0) -> FlowPrompt:
    g = torch.Generator().manual_seed(seed)
    return FlowPrompt(
        torch.randint(0, 50, (tokens,), generator=g),
        torch.randn(2 * tokens, 80, generator=g),
        torch.randn(192, generator=g),
    )


def speech(tokens: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(0, 50, (tokens,), generator=torch.Generator().manual_seed(seed))


def streamed(flow: Flow, start: FlowPrompt, tokens: torch.Tensor, ends: list[int]) -> torch.Tensor:
    state, mels = FlowState(start), []
    for end in ends:
        known = tokens[: end + flow.lookahead]
        ((mel, state),) = flow.advance([state], [known], [False])
        assert state.tokens == end
        mels.append(mel)
    ((mel, state),) = flow.advance([state], [tokens], [True])
    return torch.cat([*mels, mel], dim=1)


@pytest.mark.parametrize("flow", ["unet", "rotary"])
@settings(max_examples=15, deadline=None)
@given(p=st.integers(0, 60), n=st.integers(1, 120), data=st.data())
def test_streamed_on_the_grid_equals_whole(
    flow: str, unet: Flow, rotary: Flow, p: int, n: int, data: st.DataObject
) -> None:
    model = {"unet": unet, "rotary": rotary}[flow]
    start, tokens = prompt(p), speech(n)
    grid = [end for end in range(1, n - 3) if (p + end) % 25 == 0]
    ends = sorted(data.draw(st.sets(st.sampled_from(grid)))) if grid else []
    ((whole, _),) = model.advance([FlowState(start)], [tokens], [True])
    assert whole.shape == (80, 2 * n)
    torch.testing.assert_close(streamed(model, start, tokens, ends), whole, atol=1e-4, rtol=0)


def test_off_the_grid_it_would_not_be_exact(unet: Flow) -> None:
    """The grid is there for a reason: this test fails if the chunk mask is lost."""
    start, tokens = prompt(20), speech(60)
    ((whole, _),) = unet.advance([FlowState(start)], [tokens], [True])
    assert (streamed(unet, start, tokens, [17]) - whole).abs().max() > 1e-3


@pytest.mark.parametrize("flow", ["unet", "dit", "rotary"])
def test_a_row_does_not_depend_on_its_batch(flow: str, request: pytest.FixtureRequest) -> None:
    model: Flow = request.getfixturevalue(flow)
    rows = [
        (prompt(20, 1), speech(30, 1)),
        (prompt(0, 2), speech(55, 2)),
        (prompt(7, 3), speech(5, 3)),
    ]
    together = model.whole([p for p, _ in rows], [t for _, t in rows])
    for (start, tokens), mel in zip(rows, together, strict=True):
        (alone,) = model.whole([start], [tokens])
        torch.testing.assert_close(mel, alone, atol=1e-4, rtol=0)


def test_streams_advance_together_as_they_would_alone(unet: Flow) -> None:
    starts = [prompt(20, 1), prompt(45, 2)]
    tokens = [speech(33, 1), speech(8, 2)]
    final = [False, True]
    states = [FlowState(start) for start in starts]
    together = unet.advance(states, tokens, final)
    for start, ids, last, (mel, state) in zip(starts, tokens, final, together, strict=True):
        ((alone, lone),) = unet.advance([FlowState(start)], [ids], [last])
        torch.testing.assert_close(mel, alone, atol=1e-4, rtol=0)
        assert state.tokens == lone.tokens


def test_dit_chunks_equal_one_chunk_mask(dit: Flow) -> None:
    """With chunks of the grid's size and no look-ahead between, caches give the masked whole."""
    estimator, frames, chunk = dit.estimator, 60, 20
    g = torch.Generator().manual_seed(0)
    x, mu, condition = (torch.randn(2, 80, frames, generator=g) for _ in range(3))
    speaker, t = torch.randn(2, 80, generator=g), torch.full((2,), 0.4)
    bias = attention_bias(None, frames, chunk, x)
    whole = estimator(x, mu, speaker, condition, t, bias)
    cache, parts = None, []
    for at in range(0, frames, chunk):
        part = slice(at, at + chunk)
        y, cache = estimator.extend(
            x[..., part], mu[..., part], speaker, condition[..., part], t, cache
        )
        parts.append(y)
    torch.testing.assert_close(torch.cat(parts, 2), whole, atol=1e-5, rtol=0)


def test_dit_memory_is_bounded_and_the_noise_moves_on(dit: Flow) -> None:
    start, tokens = prompt(10), speech(200)
    state = FlowState(start)
    for end in range(20, 200, 20):
        ((mel, state),) = dit.advance([state], [tokens[: end + 3]], [False])
        assert mel.shape == (80, 40)
    assert state.cache is not None
    kept = state.cache.steps[0].attention.shape[3]
    assert kept == 2 * 10 + 30  # the prompt and the last frames
    assert state.cache.frames == 2 * (10 + 180)  # not the length of what is kept


def test_dit_remembers_the_prompt_and_the_newest_frames(dit: Flow) -> None:
    tokens = torch.arange(30)
    _, cache = dit.extend(tokens, torch.ones(192), None, None, last=True)
    kept = dit.forget(cache, 8).steps[0].attention
    full = cache.steps[0].attention
    assert torch.equal(kept[..., :8, :], full[..., :8, :])
    assert torch.equal(kept[..., 8:, :], full[..., -30:, :])


def test_dit_goes_on_without_its_caches(dit: Flow) -> None:
    """All that they hold can be computed from the tokens and where chunks ended."""
    tokens, state = speech(90), FlowState(prompt(10))
    for end in (8, 33, 60):
        ((_, state),) = dit.advance([state], [tokens[: end + 3]], [False])
    ((mel, _),) = dit.advance([state], [tokens], [True])
    ((again, _),) = dit.advance([replace(state, cache=None)], [tokens], [True])
    assert torch.equal(mel, again)
    ((other, _),) = dit.advance([replace(state, cache=None, ends=(60,))], [tokens], [True])
    assert (mel - other).abs().max() > 1e-3  # where they ended makes a difference


def test_too_long_is_an_error_that_says_so(unet: Flow) -> None:
    with pytest.raises(InputError, match="use shorter text"):
        unet.whole([prompt(0)], [speech(7501)])


def test_the_fixed_noise_is_the_published_one() -> None:
    noise = fixed_noise(80, 15_000, torch.device("cpu"))
    first = [-1.12583983, -1.15236020, -0.25057858, -0.43387881, 0.84871036, 0.69200915]
    torch.testing.assert_close(noise[0, :6], torch.tensor(first))
    assert abs(noise.double().sum().item() + 1291.2013939) < 0.01


def test_the_schedule_ends_at_one() -> None:
    for steps in (1, 4, 10):
        t, dt = schedule(steps)[-1]
        assert abs(t + dt - 1.0) < 1e-6


@given(st.integers(1, 9), st.integers(0, 6))
def test_shift_reads_each_distance(queries: int, past: int) -> None:
    keys = queries + past
    columns = torch.arange(queries + keys - 1).float().expand(1, 1, queries, -1)
    actual = shift(columns, keys)[0, 0]
    distance = (past + torch.arange(queries))[:, None] - torch.arange(keys)
    assert torch.equal(actual, (keys - 1 - distance).float())
    table = encode_distances(queries, keys, 4, torch.device("cpu"))
    torch.testing.assert_close(table[actual.long()][..., 0], distance.float().sin())


def test_it_can_be_trained() -> None:
    for config in (UNET, DIT):
        flow = Flow(config)
        batch = flow._collate([prompt(5), prompt(0)], [speech(9), speech(12)], [True, True])
        flow(batch, streaming=True).square().mean().backward()
        lacking = [n for n, p in flow.named_parameters() if p.grad is None]
        assert lacking == []
