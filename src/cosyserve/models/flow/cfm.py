"""Solving the flow: from fixed noise to mel frames by Euler steps with guidance.

The velocity is any function of (x, mu, speaker, prompt, t).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

Velocity = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, int], Tensor]


@cache
@torch.inference_mode(False)  # so that what is cached can also be trained with
def fixed_noise(channels: int, frames: int, device: torch.device) -> Tensor:
    """[channels, frames]: the noise that the published models start from, by absolute frame.

    CPU draws of seed 0, so that it is the same on every device; a prompt begins at frame 0.
    """
    generator = torch.Generator().manual_seed(0)
    return torch.randn(1, channels, frames, generator=generator)[0].to(device)


@cache
def schedule(steps: int) -> tuple[tuple[float, float], ...]:
    """(t, dt) of each step from 0 to 1, dense at the start; rounded as float32 sums round."""
    grid = 1.0 - torch.cos(torch.linspace(0, 1, steps + 1) * (0.5 * math.pi))
    t, pairs = grid[0], []
    for following in grid[1:]:
        pairs.append((t.item(), (following - t).item()))
        t = t + (following - t)
    return tuple(pairs)


def solve(
    velocity: Velocity,
    noise: Tensor,
    mu: Tensor,
    speaker: Tensor,
    prompt: Tensor,
    *,
    steps: int,
    guidance: float,
) -> Tensor:
    """noise, mu, prompt [B, mel, T], speaker [B, mel] -> mel [B, mel, T] float32.

    `velocity` also gets the number of the step. With guidance the batch is doubled: each row
    once with its conditions and once with all of them zero.
    """
    mu, speaker, prompt = (doubled(part, guidance) for part in (mu, speaker, prompt))
    x = noise.float()
    for step, (t, dt) in enumerate(schedule(steps)):
        time = torch.full((), t, device=x.device)
        x = euler(velocity, x, mu, speaker, prompt, time, dt, step, guidance)
    return x


def doubled(part: Tensor, guidance: float) -> Tensor:
    """Conditions of the rows, then those of the same rows without any."""
    return torch.cat((part, torch.zeros_like(part))) if guidance else part


def euler(
    velocity: Velocity,
    x: Tensor,
    mu: Tensor,
    speaker: Tensor,
    prompt: Tensor,
    t: Tensor,
    dt: Tensor | float,
    step: int,
    guidance: float,
) -> Tensor:
    """One step of x [B, mel, T] from time t []; the conditions are `doubled`."""
    both = torch.cat((x, x)) if guidance else x
    v = velocity(both.to(mu.dtype), mu, speaker, prompt, t.expand(len(both)), step).float()
    if guidance:
        guided, free = v.chunk(2)
        v = (1.0 + guidance) * guided - guidance * free
    return x + dt * v
