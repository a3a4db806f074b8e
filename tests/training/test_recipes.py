"""A few steps of each recipe on toy data: losses are finite, and fall where that can show."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from training import distil, flow, lm, loop, speaker, text, tokenizer, vocoder
from training.data import Corpus
from training.sizes import TOY

History = list[dict[str, float]]


@pytest.fixture(autouse=True)
def _seed() -> None:
    loop.begin(0)


def finite(history: History) -> None:
    assert history
    assert all(math.isfinite(value) for entry in history for value in entry.values())


def codes_of(corpus: Corpus) -> torch.Tensor:
    return torch.randint(0, 27, (corpus.tokens,), dtype=torch.int16)


def rows_of(corpus: Corpus) -> flow.Rows:
    return flow.Rows(corpus, codes_of(corpus), torch.randn(len(corpus.utterances), 16), 2)


def test_tokenizer(corpus: Corpus, tmp_path: Path) -> None:
    assert TOY.speech_tokenizer
    history = tokenizer.train(corpus, TOY.speech_tokenizer, tmp_path, seconds=60, steps=3, batch=4)
    finite(history)
    codes = tokenizer.tokenise(corpus, TOY.speech_tokenizer, tmp_path / "speech_tokenizer.pt")
    assert len(codes) == corpus.tokens
    assert 0 <= int(codes.min()) <= int(codes.max()) < 27


def test_rounding_passes_gradients() -> None:
    value = torch.randn(4, 7, requires_grad=True)
    rounded = tokenizer.quantised(value)
    rounded.sum().backward()
    assert set(rounded.detach().unique().tolist()) <= {-1.0, 0.0, 1.0}
    assert value.grad is not None
    assert (value.grad > 0).all()


def test_speaker(corpus: Corpus, tmp_path: Path) -> None:
    assert TOY.speaker_encoder
    finite(speaker.train(corpus, TOY.speaker_encoder, tmp_path, seconds=60, steps=3, batch=4))
    found = speaker.embed(corpus, TOY.speaker_encoder, tmp_path / "speaker_encoder.pt")
    assert found.shape == (len(corpus.utterances), 16)
    assert found.isfinite().all()


def test_flow_then_its_distillation(corpus: Corpus, tmp_path: Path) -> None:
    assert TOY.flow
    rows = rows_of(corpus)
    finite(flow.train(rows, TOY.flow, tmp_path, seconds=60, steps=3))
    finite(distil.train(rows, TOY.flow, tmp_path, seconds=60, steps=3, student_steps=2))
    assert (tmp_path / "flow_distilled.pt").exists()


def test_vocoder(corpus: Corpus, tmp_path: Path) -> None:
    assert TOY.vocoder
    history = vocoder.train(vocoder.Speech(corpus, 2), TOY.vocoder, tmp_path, seconds=60, steps=6)
    finite(history)
    assert (tmp_path / "discriminators.pt").exists()


def test_lm(corpus: Corpus, tmp_path: Path) -> None:
    assert TOY.lm
    words = text.train([u["text"] for u in corpus.utterances], 300, tmp_path / "tokenizer.json")
    pronounced = [("ah ee", "ɑi"), ("ee", "i")]
    codes = torch.full((corpus.tokens,), 5, dtype=torch.int16)
    examples = lm.build(corpus, codes, TOY.lm, words, pronounced)
    assert set(examples.rows) == {"alone", "prompted", "imagined", "held_out"}
    sizes = {"seconds": 60.0, "steps": 12, "batch": 8}
    history = lm.train(examples, TOY.lm, tmp_path, torch.device("cpu"), **sizes)
    finite(history)
    assert history[-1]["loss"] < history[0]["loss"]
