"""A few steps of each recipe on toy data: losses are finite, and fall where that can show."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from cosyserve.models.encoders.s3 import bounded
from cosyserve.models.flow.flow import Flow
from cosyserve.text import Pronouncer, TextTokenizer
from training import (
    codes,
    distil,
    flow,
    lm,
    loop,
    pronounce,
    speaker,
    text,
    tokenizer,
    vocoder,
)
from training.data import MARKS, Corpus
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
    embeddings = torch.randn(len(corpus.utterances), 16)
    return flow.Rows(corpus, codes_of(corpus), codes_of(corpus), embeddings, 2)


def test_tokenizer(corpus: Corpus, tmp_path: Path) -> None:
    assert TOY.speech_tokenizer
    windows = tokenizer.Windows(corpus, codes.takes(corpus))
    history = tokenizer.train(windows, TOY.speech_tokenizer, tmp_path, seconds=60, steps=3, batch=4)
    finite(history)
    hearing = tokenizer.Hearing(corpus, TOY.speech_tokenizer, tmp_path / "speech_tokenizer.pt")
    found = hearing.codes(0)
    assert len(found) == corpus.utterances[0]["tokens"]
    said = codes.parted(found)[0].unique_consecutive()
    assert "".join(MARKS[i] for i in said).strip("_") == corpus.utterances[0]["phonemes"]
    heard = hearing.heard()
    assert len(heard) == corpus.tokens
    first = corpus["whisper"][: 4 * corpus.utterances[0]["tokens"]].float().T[None]
    alone, _ = hearing.model(first, torch.tensor([first.shape[2]]))
    assert heard[: alone.shape[1]].equal(alone[0])


def test_scores_agree_with_rounding() -> None:
    value = torch.linspace(-2, 2, 401)
    rounded = bounded(value).round()
    assert torch.equal(tokenizer.scores(value).argmax(-1) - 1.0, rounded)


def test_the_likeliest_path_follows_the_phonemes() -> None:
    said = "__ɑɑiii__ɑ"
    found = torch.full((len(said), len(MARKS)), -5.0)
    for row, mark in zip(found, said, strict=True):
        row[MARKS.index(mark)] = 0.0
    found[5] = 0.0  # nobody could tell
    marks = tokenizer.aligned(found, "ˈɑi, ɑ.")
    assert "".join(MARKS[i] for i in marks) == said
    assert "".join(MARKS[i] for i in tokenizer.aligned(found[2:7], "ɑ i")) == "ɑɑiii"


def test_speaker(corpus: Corpus, tmp_path: Path) -> None:
    assert TOY.speaker_encoder
    finite(speaker.train(corpus, TOY.speaker_encoder, tmp_path, seconds=60, steps=3, batch=4))
    found = speaker.embed(corpus, TOY.speaker_encoder, tmp_path / "speaker_encoder.pt")
    assert found.shape == (len(corpus.utterances), 16)
    assert found.isfinite().all()


def test_prompts_are_as_heard_and_may_have_to_say_who_speaks(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "TELLING", 8)
    known, heard = torch.zeros(corpus.tokens).short(), torch.ones(corpus.tokens).short()
    rows = flow.Rows(corpus, known, heard, torch.ones(len(corpus.utterances), 16), 400)
    batch = rows.draw()
    given = batch.given[:, 0, ::2]
    assert not (batch.codes.bool() & ~given).any()
    length, as_heard = given.sum(1), batch.codes.any(1)
    prompted = length > 0
    assert batch.codes[as_heard].bool().equal(given[as_heard])
    assert 0.4 < float(as_heard[prompted].float().mean()) < 0.6
    unnamed = (batch.speaker == 0).all(1)
    assert not unnamed[length < 8].any()
    assert 0.1 < float(unnamed[length >= 8].float().mean()) < 0.3
    assert batch.prompt.equal(batch.mel * batch.given)


def test_half_of_the_rows_with_a_telling_prompt_are_bent(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "TELLING", 8)
    monkeypatch.setitem(corpus.arrays, "mel", torch.zeros_like(corpus["mel"]))
    known = torch.zeros(corpus.tokens).short()
    batch = flow.Rows(corpus, known, known, torch.ones(len(corpus.utterances), 16), 400).draw()
    length, curve = batch.given[:, 0, ::2].sum(1), batch.mel[..., 0]
    assert batch.mel.equal(curve[..., None].expand(batch.mel.shape))  # a microphone does not change
    bent = curve.abs().sum(1) > 0
    assert not bent[length < 8].any()
    assert 0.4 < float(bent[length >= 8].float().mean()) < 0.6
    expected = flow.RIPPLE * math.sqrt(flow.RIPPLES / 2)
    assert float(curve[bent].std()) == pytest.approx(expected, rel=0.15)
    assert float(curve[bent].diff(dim=1).std()) < 0.15 * expected


def test_flow_then_its_distillation(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert TOY.flow
    rows = rows_of(corpus)

    def kept(name: str) -> dict[str, torch.Tensor]:
        state: dict[str, torch.Tensor] = torch.load(tmp_path / name, weights_only=True)
        return state

    forgetting = Mock(wraps=flow.forgetful)
    monkeypatch.setattr(flow, "forgetful", forgetting)
    finite(flow.train(rows, TOY.flow, tmp_path, seconds=60, steps=3))
    assert forgetting.call_count == 1
    first = kept("flow.pt")
    finite(flow.train(rows, TOY.flow, tmp_path, seconds=60, steps=3, resume=True))
    assert forgetting.call_count == 1
    second = kept("flow.pt")
    finite(distil.train(rows, TOY.flow, tmp_path, seconds=60, steps=3, student_steps=2))
    third = kept("flow_distilled.pt")
    later = ("decoder.", "spk_embed_affine_layer.")
    assert {k.split(".")[0] + "." for k in first if not first[k].equal(second[k])} == set(later)
    assert {k.split(".")[0] + "." for k in second if not second[k].equal(third[k])} == {"decoder."}
    flow.train(rows, TOY.flow, tmp_path, seconds=60, steps=3, resume=True, encoder=True)
    assert forgetting.call_count == 2
    fourth = kept("flow.pt")
    assert not second["encoder_proj.weight"].equal(fourth["encoder_proj.weight"])


def test_a_student_begins_with_an_earlier_change(corpus: Corpus, tmp_path: Path) -> None:
    assert TOY.flow
    own, old, new = (Flow(TOY.flow) for _ in range(3))
    files = [tmp_path / name for name in ("flow.pt", "before.pt", "after.pt")]
    for made, file in zip((own, old, new), files, strict=True):
        loop.save_state(made, file)
    sizes = {"seconds": 60.0, "steps": 1, "student_steps": 2}
    distil.train(rows_of(corpus), TOY.flow, tmp_path, earlier=(files[1], files[2]), **sizes)
    found = torch.load(tmp_path / "flow_distilled.pt", weights_only=True)
    before, after = old.state_dict(), new.state_dict()
    for key, value in own.state_dict().items():
        moved = after[key] - before[key] if key.startswith("decoder.") else 0.0
        assert torch.allclose(found[key], value + moved, atol=1e-4)


def test_an_encoder_forgets_only_while_it_learns() -> None:
    assert TOY.flow
    made, codes = Flow(TOY.flow), torch.arange(20)[None]
    nobody = torch.zeros(1, TOY.flow.speaker)
    said = [flow.conditions(made, codes, nobody, False)[0] for _ in range(2)]
    assert said[0].equal(said[1])
    flow.forgetful(made)
    said = [flow.conditions(made, codes, nobody, False)[0] for _ in range(2)]
    assert not said[0].equal(said[1])


def test_vocoder(corpus: Corpus, tmp_path: Path) -> None:
    assert TOY.vocoder
    speech = vocoder.Speech(corpus, 1)
    finite(vocoder.train(speech, TOY.vocoder, tmp_path, seconds=60, steps=3))
    before = torch.load(tmp_path / "vocoder.pt", weights_only=True)
    sizes = {"seconds": 6000.0, "steps": 3, "resume": True}
    together = vocoder.train(speech, TOY.vocoder, tmp_path, **sizes)
    (tmp_path / "discriminators.pt").unlink()
    history = vocoder.train(speech, TOY.vocoder, tmp_path, **sizes)
    finite(together + history)
    assert ["fooled" in entry for entry in together] == [True, True]
    assert ["fooled" in entry for entry in history] == [False, False, True, True]
    after = torch.load(tmp_path / "vocoder.pt", weights_only=True)
    assert any(not after[key].equal(value) for key, value in before.items())


def test_lm(corpus: Corpus, tmp_path: Path) -> None:
    assert TOY.lm
    text.write([u["phonemes"] for u in corpus.utterances], 100, tmp_path / "tokenizer.json")
    words = TextTokenizer.from_json(tmp_path / "tokenizer.json")
    assert words.decode(words.encode("iɑ")) == "iɑ"
    takes = [[[5] * u["tokens"] for u in corpus.utterances]] * 2
    examples = lm.build(corpus, takes, TOY.lm, words)
    assert (len(examples.held_out), len(examples.learnt)) == (2, 2 * 2 * 11)
    sizes = {"seconds": 60.0, "steps": 12, "positions": 1024}
    history = lm.train(examples, TOY.lm, tmp_path, torch.device("cpu"), **sizes)
    finite(history)
    assert history[-1]["loss128"] < history[0]["loss128"]


def test_pronouncer_runs_as_it_was_trained(tmp_path: Path) -> None:
    known = {"see": "sˈi", "sees": "sˈiz", "tea": "tˈi", "teas": "tˈiz", "x": "ˈɛks"}
    words = pronounce.Words(known, Counter({"see": 9}), set("sˈiztɛk"))
    assert words.sounds[1:] == ["k", "s", "t", "z", "ˈi", "ˈɛ"]
    sizes = {"seconds": 600.0, "steps": 150, "batch": 8}
    history = pronounce.train(words, tmp_path, torch.device("cpu"), **sizes)
    assert history[-1]["loss"] < 0.5 * history[0]["loss"]
    reader = Pronouncer.load(tmp_path / "pronouncer.safetensors")
    letters = words.letters[2, : words.lengths[2]]
    net = pronounce.Net(len(words.sounds)).eval()
    net.load_state_dict({key: torch.from_numpy(v) for key, v in reader.tensors.items()})
    with torch.inference_mode():
        expected = net(letters[None], words.lengths[2:3])[0].numpy()
    (logits,) = reader.logits([letters.tolist()])
    assert abs(logits - expected).max() < 1e-3


def test_a_stress_mark_belongs_to_its_sound() -> None:
    assert pronounce.split_sounds("əbˈWt") == ["ə", "b", "ˈW", "t"]
