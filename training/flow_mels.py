"""The corpus once more, as the flow says it: mel frames for a vocoder that has to speak from them.

Every utterance whose marks and voice are known is made of its own codes behind the preset's lead,
as in use: one in two with the mask of a stream, one pair in two with a first step that leads to the
truth, so that the frames come nearer to it. Frames lie in time with the samples, since codes do;
where they still differ too much from the truth they are written, but not called close. Knows no
vocoder.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cosyserve.checkpoints import native
from cosyserve.checkpoints.parts import build
from cosyserve.models.flow.cfm import solve
from cosyserve.models.flow.flow import Flow
from cosyserve.models.flow.stream import FlowPrompt
from cosyserve.voices.file import load_voice
from training import codes, loop
from training.data import UNKNOWN, Corpus

BATCH = 24
FURTHEST = 0.55  # from the truth, mean of the utterance: flow 0.43 in the median, led 0.30


def prompts(model: Path, device: torch.device) -> dict[str, FlowPrompt]:
    """What leads the flow in each preset voice of a model folder."""
    found = {}
    for file in (model / "voices").glob("*.safetensors"):
        voice = load_voice(file)
        tokens = torch.from_numpy(voice.speech_tokens).long().to(device)
        mel, embedding = (torch.from_numpy(a).to(device) for a in (voice.mel, voice.embedding))
        found[file.stem] = FlowPrompt(tokens, mel, embedding)
    return found


@torch.inference_mode()
def said(
    flow: Flow,
    leads: Sequence[FlowPrompt],
    tokens: Sequence[Tensor],
    true: Sequence[Tensor],
    *,
    streaming: bool,
    led: bool,
) -> list[Tensor]:
    """codes [n] and true mels [2n, mel] of utterances -> mels [2n, mel] that the flow makes."""
    batch = flow._collate(leads, tokens, [True] * len(leads))
    mu, bias = flow.conditions(batch, streaming), flow.attention_bias(batch, streaming)
    noise = flow.noise(0, mu.shape[2], mu.device).expand_as(mu)
    truth = torch.zeros_like(mu)
    for row, lead, mel in zip(truth, leads, true, strict=True):
        whole = torch.cat((lead.mel, mel))
        row[:, : len(whole)] = whole.T

    def velocity(
        x: Tensor, mu: Tensor, speaker: Tensor, prompt: Tensor, t: Tensor, step: int
    ) -> Tensor:
        if led and step == 0:
            return truth - noise
        v: Tensor = flow.estimator(x, mu, speaker, prompt, t, bias)
        return v

    speaker, steps = flow.speaker(batch.speaker), flow.config.steps
    made = solve(velocity, noise, mu, speaker, batch.prompt, steps=steps, guidance=0.0)
    return [m.T for m in flow.speech(made, batch.encoded, leads, [0] * len(leads))]


def write(corpus: Corpus, flow: Flow, leads: dict[str, FlowPrompt]) -> dict[str, float]:
    """Adds flow_mel.npy [frames, mel] and close.npy [tokens] to the arrays of the corpus."""
    device, count = corpus.device, len(corpus.utterances)
    spans = list(pairwise(corpus.start.tolist()))
    spelled = codes.take(corpus, codes.octaves(corpus), [1.0] * count, [0.0] * count).codes
    known = [
        i
        for i, (first, end) in enumerate(spans)
        if corpus.utterances[i]["voice"] in leads and (spelled[first:end] != UNKNOWN).all()
    ]
    known.sort(key=lambda i: spans[i][1] - spans[i][0])
    mels = np.array(corpus["mel"].cpu())
    close = np.zeros(corpus.tokens, bool)
    away: dict[str, list[float]] = {"free": [], "led": []}
    for kind in range(4):
        streaming, led = bool(kind % 2), kind >= 2
        mine = known[kind::4]
        for at in range(0, len(mine), BATCH):
            rows = mine[at : at + BATCH]
            tokens = [spelled[slice(*spans[i])].to(device) for i in rows]
            true = [corpus["mel"][2 * spans[i][0] : 2 * spans[i][1]].float() for i in rows]
            lead = [leads[corpus.utterances[i]["voice"]] for i in rows]
            made = said(flow, lead, tokens, true, streaming=streaming, led=led)
            for i, mel, goal in zip(rows, made, true, strict=True):
                first, end = spans[i]
                distance = float((mel - goal).abs().mean())
                away["led" if led else "free"].append(distance)
                mels[2 * first : 2 * end] = mel.cpu().numpy()
                close[first:end] = distance < FURTHEST
    np.save(corpus.folder / "flow_mel.npy", mels)
    np.save(corpus.folder / "close.npy", close)
    told = {name: float(np.median(found)) for name, found in away.items() if found}
    return told | {"close": float(close.mean())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="arrays written by training.data")
    parser.add_argument("--model", type=Path, required=True, help="folder with flow and voices")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    loop.begin(0)
    corpus = Corpus.load(given.data, given.device)
    parts = native.read(given.model)
    assert parts.config.flow
    flow = build(Flow, parts.config.flow, parts.states["flow"], "flow").float().to(given.device)
    print(write(corpus, flow.eval(), prompts(given.model, corpus.device)))


if __name__ == "__main__":
    main()
