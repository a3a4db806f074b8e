"""Trains one encoder of the flow to say what several say on average.

Each learnt its own corpus by heart, one more than the other; what they agree on is what codes mean.
Their mean needs no speech: codes of any pace and order are asked. Knows no U-Net and no speaker.
"""

from __future__ import annotations

import copy
import random
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from cosyserve.models.config import FlowConfig
from cosyserve.models.flow import Flow
from training import codes, loop
from training.data import Corpus
from training.flow import WINDOW, conditions, encoder_of
from training.sizes import NANO

BATCH = 16
PEAK_RATE = 6e-4
PACES = (0.8, 1.2)
STEPS_OF_TAKE = 150  # until the corpus is spoken anew
BEGUN_WITHIN = 0.3  # of the rows


class Asked:
    """Utterances of the corpus at another pace, one after the other in any order."""

    def __init__(self, corpus: Corpus, batch: int) -> None:
        self.corpus, self.batch, self.drawn = corpus, batch, 0
        self.octave = codes.octaves(corpus)

    def draw(self) -> Tensor:
        """codes [B, T]"""
        if self.drawn % STEPS_OF_TAKE == 0:
            spoken = codes.any_take(self.corpus, self.octave, PACES)
            self.rows = [
                row for row in spoken.codes.split(spoken.lengths.tolist()) if (row >= 0).all()
            ]
        self.drawn += 1
        return torch.stack([self._row() for _ in range(self.batch)]).to(self.corpus.device)

    def _row(self) -> Tensor:
        row = random.choice(self.rows)
        if random.random() < BEGUN_WITHIN:
            row = row[random.randrange(len(row) // 2 + 1) :]
        while len(row) < WINDOW:
            row = torch.cat((row, random.choice(self.rows)))
        return row[:WINDOW].long()


def train(
    asked: Asked, config: FlowConfig, out: Path, others: list[Path], *, seconds: float, steps: int
) -> list[dict[str, float]]:
    """`flow.pt` in `out` gets an encoder that agrees with its own and the `others`' on average."""
    device = asked.corpus.device
    known = [Flow(config) for _ in range(1 + len(others))]
    for flow, file in zip(known, [out / "flow.pt", *others], strict=True):
        loop.load_state(flow, file)
        flow.to(device).requires_grad_(False)
    student = copy.deepcopy(known[0])
    learning = encoder_of(student).requires_grad_(True)
    average = loop.Average(student, decay=0.995)
    rate = torch.zeros((), device=device)
    optimizer = loop.adam(learning.parameters(), rate, decay=0.0)
    nobody = torch.zeros(asked.batch, config.speaker, device=device)

    def step(name: str, streaming: bool) -> loop.Losses:
        optimizer.zero_grad(set_to_none=True)
        row = asked.draw()
        with torch.no_grad():
            said = [conditions(flow, row, nobody, streaming)[0] for flow in known]
        loss = (conditions(student, row, nobody, streaming)[0] - torch.stack(said).mean(0)).abs()
        loss.mean().backward()
        nn.utils.clip_grad_norm_(learning.parameters(), 1.0)
        optimizer.step()
        average.follow()
        return {name: loss.mean().detach()}

    def save() -> None:
        loop.save_state(average.copy, out / "flow.pt")

    runner = loop.Loop("agree", out, rate, PEAK_RATE, seconds, steps, save, warm_up=50, graph=False)
    return runner.run(partial(step, "whole", False), partial(step, "streamed", True))


def main() -> None:
    parser = loop.arguments(__doc__, seconds=1500)
    parser.add_argument("--others", type=Path, nargs="+", required=True, help="flows, as flow.pt")
    given = parser.parse_args()
    loop.begin(given.seed)
    random.seed(given.seed)
    corpus = Corpus.load(given.data, given.device)
    assert NANO.flow
    asked = Asked(corpus, given.batch or BATCH)
    sizes = {"seconds": given.seconds, "steps": given.steps}
    train(asked, NANO.flow, given.out, given.others, **sizes)


if __name__ == "__main__":
    main()
