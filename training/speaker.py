"""Trains the speaker encoder: two seconds of speech become a vector that tells voices apart.

Classification of the corpus' voices with an additive margin. Knows no text and no tokens.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyserve.models.config import CamPlusConfig
from cosyserve.models.encoders.campplus import CamPlus
from training import loop
from training.data import Corpus
from training.sizes import NANO

WINDOW = 50  # tokens: 2 s
BATCH = 128
PEAK_RATE = 2e-3
MARGIN, SHARPNESS = 0.2, 24.0


def train(
    corpus: Corpus, config: CamPlusConfig, out: Path, *, seconds: float, steps: int, batch: int
) -> list[dict[str, float]]:
    device = corpus.device
    model = CamPlus(config).to(device)
    directions = nn.Parameter(torch.randn(len(corpus.voices), config.embedding, device=device))
    rate = torch.zeros((), device=device)
    parameters = [*model.parameters(), directions]
    optimizer = loop.adam(parameters, rate, decay=0.05)
    voice = corpus.voice_of_tokens()
    # Every voice as often as every other, however much it says.
    border = torch.searchsorted(voice, torch.arange(len(corpus.voices) + 1, device=device))
    window = min(WINDOW, int(border.diff().min()) - 1)
    first_of, room = border[:-1], border.diff() - window

    def step() -> loop.Losses:
        optimizer.zero_grad(set_to_none=True)
        who = torch.randint(0, len(corpus.voices), (batch,), device=device)
        part = torch.rand(batch, device=device, dtype=torch.float64)
        first = first_of[who] + (part * room[who]).long()
        heard = corpus.windows("fbank", first, window).float()
        heard = heard + 0.3 * torch.randn(batch, 1, 80, device=device)
        heard = heard - heard.mean(1, keepdim=True)
        heard = heard + 0.2 * torch.randn_like(heard)
        with loop.half_precision(device):
            embedding = model(heard)
        near = F.normalize(embedding.float()) @ F.normalize(directions).T
        margin = MARGIN * F.one_hot(who, len(corpus.voices))
        loss = F.cross_entropy(SHARPNESS * (near - margin), who)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return {"loss": loss.detach(), "right": (near.argmax(1) == who).float().mean()}

    def save() -> None:
        loop.save_state(model, out / "speaker_encoder.pt")

    runner = loop.Loop("speaker_encoder", out, rate, PEAK_RATE, seconds, steps, save)
    return runner.run(step)


@torch.inference_mode()
def embed(corpus: Corpus, config: CamPlusConfig, checkpoint: Path) -> Tensor:
    """The embedding of every utterance, [U, E]."""
    model = CamPlus(config)
    loop.load_state(model, checkpoint)
    torch.backends.cudnn.benchmark = False  # every length is a new one
    model = model.to(corpus.device).eval()
    start = corpus.start.tolist()
    order = sorted(range(len(start) - 1), key=lambda i: start[i + 1] - start[i])
    found = torch.zeros(len(order), config.embedding, device=corpus.device)
    for at in range(0, len(order), 64):
        rows = order[at : at + 64]
        heard = [corpus["fbank"][4 * start[i] : 4 * start[i + 1] - 2].float() for i in rows]
        lengths = torch.tensor([len(row) for row in heard], device=corpus.device)
        padded = nn.utils.rnn.pad_sequence([h - h.mean(0) for h in heard], batch_first=True)
        found[torch.tensor(rows, device=corpus.device)] = model(padded, lengths)
    return found


def main() -> None:
    given = loop.arguments(__doc__, seconds=150).parse_args()
    loop.begin(given.seed)
    corpus = Corpus.load(given.data, given.device)
    config = NANO.speaker_encoder
    assert config
    batch = given.batch or BATCH
    if not given.resume:  # a finished encoder must not change: voices are made with it
        train(corpus, config, given.out, seconds=given.seconds, steps=given.steps, batch=batch)
    found = embed(corpus, config, given.out / "speaker_encoder.pt")
    torch.save(found.cpu(), given.out / "embeddings.pt")


if __name__ == "__main__":
    main()
