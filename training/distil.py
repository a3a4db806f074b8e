"""Distils the flow: a few Euler steps without guidance that land where many with guidance do.

The student begins as the teacher, or as the teacher changed the way an earlier distillation changed
its own: most of what few steps need is that change. Both start from the same noise; the student's
own path of a few steps is followed to its end and compared with the teacher's end. Knows no corpus
beyond windows.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from cosyserve.models.config import FlowConfig
from cosyserve.models.flow.cfm import solve
from cosyserve.models.flow.flow import Flow
from cosyserve.models.flow.masks import attention_bias
from training import loop
from training.data import Corpus
from training.flow import Rows, conditions
from training.sizes import NANO

STEPS = 2
TEACHER_STEPS = 12
BATCH = 20
PEAK_RATE = 3e-4


@torch.no_grad()
def change(student: Flow, before: Path, after: Path) -> None:
    """Adds what became of the flow `before` by its distillation to the one `after`."""
    old, new = Flow(student.config), Flow(student.config)
    loop.load_state(old, before)
    loop.load_state(new, after)
    for own, a, b in zip(
        *(flow.estimator.parameters() for flow in (student, old, new)), strict=True
    ):
        own += (b - a).to(own.device)


def velocity(flow: Flow, streaming: bool) -> Callable[..., Tensor]:
    chunk = 2 * flow.config.encoder.chunk if streaming else 0

    def field(
        x: Tensor, mu: Tensor, speaker: Tensor, prompt: Tensor, t: Tensor, step: int
    ) -> Tensor:
        bias = attention_bias(None, x.shape[2], chunk, x)
        v: Tensor = flow.estimator(x, mu, speaker, prompt, t, bias)
        return v

    return field


def train(
    rows: Rows,
    config: FlowConfig,
    out: Path,
    *,
    seconds: float,
    steps: int,
    student_steps: int = STEPS,
    teacher_steps: int = TEACHER_STEPS,
    earlier: tuple[Path, Path] | None = None,
    fused: bool = False,
) -> list[dict[str, float]]:
    """`earlier`: a flow before and after its distillation, to begin with the same change."""
    device = rows.corpus.device
    teacher = Flow(config)
    loop.load_state(teacher, out / "flow.pt")
    teacher = teacher.to(device).requires_grad_(False)
    student = copy.deepcopy(teacher)
    if earlier:
        change(student, *earlier)
    student.estimator.requires_grad_(True)
    average = loop.Average(student)
    if fused:
        loop.fuse([teacher.estimator, student.estimator])
    rate = torch.zeros((), device=device)
    optimizer = loop.adam(student.estimator.parameters(), rate, decay=0.0)

    def one(streaming: bool) -> tuple[Tensor, Tensor]:
        batch = rows.draw()
        mel, given = batch.mel, batch.given
        noise = torch.randn_like(mel)
        with loop.half_precision(device):
            with torch.no_grad():
                mu, who = conditions(teacher, batch.codes, batch.speaker, streaming)
                goal = solve(
                    velocity(teacher, streaming),
                    noise,
                    mu.float(),
                    who.float(),
                    batch.prompt,
                    steps=teacher_steps,
                    guidance=config.guidance,
                )
            made = solve(
                velocity(student, streaming),
                noise,
                mu.float(),
                who.float(),
                batch.prompt,
                steps=student_steps,
                guidance=0.0,
            )
        near = ((made - goal).abs() * ~given).sum() / (~given).sum() / mel.shape[1]
        near.backward()
        return near.detach(), ((goal - mel).abs() * ~given).mean()

    def step(name: str, streaming: bool) -> loop.Losses:
        optimizer.zero_grad(set_to_none=True)
        near, truth = one(streaming)
        nn.utils.clip_grad_norm_(student.estimator.parameters(), 1.0)
        optimizer.step()
        average.follow()
        return {name: near, "teacher_to_truth": truth}

    def save() -> None:
        loop.save_state(average.copy, out / "flow_distilled.pt")

    runner = loop.Loop("distil", out, rate, PEAK_RATE, seconds, steps, save, warm_up=50)
    return runner.run(partial(step, "whole", False), partial(step, "streamed", True))


def arguments() -> argparse.ArgumentParser:
    parser = loop.arguments(__doc__, seconds=180)
    text = "checkpoints of a flow before and after its distillation"
    parser.add_argument("--earlier", type=Path, nargs=2, metavar=("FLOW", "DISTILLED"), help=text)
    return parser


def main() -> None:
    given = arguments().parse_args()
    loop.begin(given.seed)
    corpus = Corpus.load(given.data, given.device)
    assert NANO.flow
    rows = Rows.load(corpus, given.out, given.batch or BATCH)
    sizes = {"seconds": given.seconds, "steps": given.steps, "fused": given.compile}
    train(rows, NANO.flow, given.out, earlier=given.earlier, **sizes)


if __name__ == "__main__":
    main()
