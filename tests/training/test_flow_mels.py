"""The flow's own mel frames of a corpus, and rows of them for the vocoder."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cosyserve.models.flow.cfm import schedule
from cosyserve.models.flow.flow import Flow
from cosyserve.models.flow.stream import FlowPrompt
from training import flow_mels, vocoder
from training.data import Corpus
from training.sizes import TOY

Tensors = Sequence[torch.Tensor]


@pytest.fixture
def own(corpus: Corpus, tmp_path: Path) -> Corpus:
    """A copy of the corpus, to add arrays to."""
    shutil.copytree(corpus.folder, tmp_path / "arrays")
    return Corpus.load(tmp_path / "arrays")


def lead(tokens: int) -> FlowPrompt:
    return FlowPrompt(torch.arange(tokens), torch.randn(2 * tokens, 80), torch.randn(16))


@pytest.mark.parametrize("streaming", [False, True])
def test_frames_lie_in_time_with_speech(streaming: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flow that stands still leaves noise and what the first step led to."""
    monkeypatch.setattr(Flow, "estimator", lambda _flow, x, *_: torch.zeros_like(x))
    assert TOY.flow
    flow = Flow(TOY.flow)
    leads, codes = [lead(5), lead(2)], [torch.arange(4), torch.arange(30)]
    true = [torch.randn(2 * len(c), 80) for c in codes]
    (_, reached), _ = schedule(2)
    for led, part in ((False, 0.0), (True, reached)):
        made = flow_mels.said(flow, leads, codes, true, streaming=streaming, led=led)
        for mel, goal, before in zip(made, true, leads, strict=True):
            noise = flow.noise(2 * len(before.tokens), len(goal), torch.device("cpu")).T
            assert torch.allclose(mel, (1 - part) * noise + part * goal, atol=1e-5)


def test_what_differs_too_much_or_has_no_voice_is_not_close(
    own: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = []

    def said(_flow: Flow, _leads: Any, _codes: Tensors, true: Tensors, **kind: bool) -> Tensors:
        kinds.append(tuple(kind.values()))
        return [mel + (flow_mels.FURTHEST + 0.1 if kind["led"] else 0.1) for mel in true]

    monkeypatch.setattr(flow_mels, "said", said)
    assert TOY.flow
    told = flow_mels.write(own, Flow(TOY.flow), {"am_toy": lead(3)})
    assert set(kinds) == {(False, False), (True, False), (False, True), (True, True)}
    away = (own["flow_mel"].float() - own["mel"].float()).mean(1).view(-1, 2).mean(1)
    mine = torch.tensor([own.voices[v] == "am_toy" for v in own.voice_of_tokens()])
    assert (away[~mine] == 0).all()
    assert (away[mine] > 0.09).all()
    assert own["close"].equal(mine & (away < flow_mels.FURTHEST))
    assert told["close"] == pytest.approx(float(own["close"].float().mean()))
    assert 0 < told["close"] < 0.5


def test_half_of_the_rows_have_the_mel_of_the_flow(own: Corpus) -> None:
    close = np.arange(own.tokens) >= own.tokens - vocoder.WINDOW
    np.save(own.folder / "close.npy", close)
    np.save(own.folder / "flow_mel.npy", np.full(own["mel"].shape, 7, np.float16))
    mel, wave, _ = vocoder.Speech(own, 5).draw()
    assert (mel == 7).flatten(1).all(1).tolist() == [False] * 3 + [True] * 2
    last = own["wave"][-wave.shape[1] :].float() / 32767
    assert torch.equal(wave[3], last)
    assert torch.equal(wave[4], last)


def test_rows_that_weigh_nothing_cost_nothing() -> None:
    spectral = vocoder.SpectralLoss()
    made, real = torch.randn(2, 2, 4800).unbind()
    half = spectral(made, real, torch.tensor([1.0, 0.0]))
    made[1] = 0.5 * made[1]
    assert all(map(torch.equal, spectral(made, real, torch.tensor([1.0, 0.0])), half))
    both = spectral(made, real, torch.ones(2))
    assert all(a < b for a, b in zip(half, both, strict=True))
