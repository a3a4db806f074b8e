"""What all recipes share: their command line, the loop, its log and its checkpoints.

On a GPU a whole training step (data, forward, backward, update) is captured once as a CUDA graph
and replayed: small models are bound by launches. Knows no model and no loss.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

Losses = dict[str, Tensor]
EAGER_STEPS = 3  # before capture, so that lazily made buffers exist
FLOOR = 0.02  # of the peak learning rate at the end


def arguments(description: str | None, seconds: float = 600) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, required=True, help="arrays written by training.data")
    parser.add_argument("--out", type=Path, required=True, help="folder of checkpoints and logs")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=seconds, help="time to train")
    parser.add_argument("--steps", type=int, default=1_000_000, help="steps at most")
    parser.add_argument("--batch", type=int, default=0, help="0: the recipe's own")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="start from the checkpoint in out")
    parser.add_argument("--compile", action="store_true", help="fuse kernels with torch.compile")
    return parser


def begin(seed: int) -> None:
    torch.manual_seed(seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True


def fuse(modules: Iterable[nn.Module]) -> None:
    """Compiles modules in place; worth it for long runs on a GPU."""
    torch._dynamo.config.cache_size_limit = 128
    for module in modules:
        module.compile(dynamic=False)


def adam(
    parameters: Iterable[nn.Parameter],
    rate: Tensor,
    betas: tuple[float, float] = (0.9, 0.98),
    decay: float = 0.01,
) -> torch.optim.AdamW:
    """Reads its learning rate from a tensor, so that a captured step can follow a schedule."""
    on_gpu = rate.is_cuda
    return torch.optim.AdamW(
        list(parameters), lr=rate, betas=betas, weight_decay=decay, capturable=on_gpu, fused=on_gpu
    )


@dataclass
class Average:
    """A slowly following copy of a model: what is kept in the end."""

    model: nn.Module
    decay: float = 0.999
    copy: nn.Module = field(init=False)

    def __post_init__(self) -> None:
        self.copy = copy.deepcopy(self.model).requires_grad_(False)

    @torch.no_grad()
    def follow(self) -> None:
        ours, theirs = list(self.copy.parameters()), list(self.model.parameters())
        torch._foreach_lerp_(ours, theirs, 1 - self.decay)
        for mine, other in zip(self.copy.buffers(), self.model.buffers(), strict=True):
            mine.copy_(other)


@dataclass
class Loop:
    """Runs steps until time or steps are over; `save` is called now and then and at the end."""

    name: str
    out: Path
    rate: Tensor  # the learning rate that the optimizers read
    peak: float
    seconds: float
    steps: int
    save: Callable[[], None]
    warm_up: int = 200
    save_every: float = 60.0
    log_every: int = 100
    graph: bool = True  # False: steps that the host has a part in
    history: list[dict[str, float]] = field(default_factory=list)

    def run(self, *steps: Callable[[], Losses]) -> list[dict[str, float]]:
        """Takes the kinds of steps in turn."""
        self.out.mkdir(parents=True, exist_ok=True)
        if not self.rate.is_cuda:
            return self._run(list(steps))
        # Warm-up, capture and replay must share a stream that is not the default one.
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            return self._run(list(steps))

    def _run(self, kinds: list[Callable[[], Losses]]) -> list[dict[str, float]]:
        begun = logged = saved = time.monotonic()
        losses: Losses = {}
        count, eager = 0, EAGER_STEPS * len(kinds)
        while count < self.steps and (now := time.monotonic()) - begun < self.seconds:
            progress = max(count / self.steps, (now - begun) / self.seconds)
            fall = FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * progress))
            self.rate.fill_(self.peak * min(1.0, (count + 1) / self.warm_up) * fall)
            if count == eager and self.graph and self.rate.is_cuda:
                kinds = [captured(step) for step in kinds]
            losses = losses | kinds[count % len(kinds)]()
            count += 1
            if count % self.log_every == 0 or count == self.steps or count == 1:
                self._log(count, losses, now - begun, (now - logged))
                logged = now
            if now - saved > self.save_every:
                self.save()
                saved = now
        self.save()
        return self.history

    def _log(self, count: int, losses: Losses, elapsed: float, since: float) -> None:
        entry = {"step": float(count), "seconds": round(elapsed, 1)}
        entry |= {key: round(float(value), 4) for key, value in losses.items()}
        if not all(math.isfinite(value) for value in entry.values()):
            raise RuntimeError(f"{self.name}: a loss is not finite: {entry}")
        self.history.append(entry)
        with (self.out / f"{self.name}.log").open("a") as stream:
            stream.write(json.dumps(entry) + "\n")


def captured(step: Callable[[], Losses]) -> Callable[[], Losses]:
    """The step as one CUDA graph."""
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        losses = step()

    def replay() -> Losses:
        graph.replay()
        return losses

    replay()
    return replay


def half_precision(device: torch.device) -> torch.autocast:
    """bfloat16 products where the device is fast at them."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


def save_state(model: nn.Module, file: Path) -> None:
    """All or nothing: another process may be waiting for the file."""
    partial = file.with_suffix(".partial")
    torch.save({key: value.detach().cpu() for key, value in model.state_dict().items()}, partial)
    partial.replace(file)


def load_state(model: nn.Module, file: Path) -> None:
    state = torch.load(file, map_location="cpu", weights_only=True)
    model.load_state_dict({key: value.float() for key, value in state.items()})
