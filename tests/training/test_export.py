"""From checkpoints to a model folder and back."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cosyserve.checkpoints import native
from cosyserve.checkpoints.load import SHIPPED_FOLDER
from cosyserve.models.lm.lm import SpeechLM
from cosyserve.text import TextTokenizer
from training import export, loop, presets, text
from training.data import Corpus
from training.sizes import NANO, TOY


def test_the_shipped_folder_becomes_checkpoints_of_its_sizes(tmp_path: Path) -> None:
    export.checkpoints(SHIPPED_FOLDER, tmp_path)
    assert NANO.lm
    lm = SpeechLM(NANO.lm)
    loop.load_state(lm, tmp_path / "lm.pt")
    stored = native.read(SHIPPED_FOLDER).states["lm"]["head.bias"].float()
    assert torch.allclose(lm.head.bias * export.SHARPENING, stored, atol=1e-3)
    found = {file.name for file in tmp_path.iterdir()}
    assert {"flow.pt", "vocoder.pt", "speech_tokenizer.pt", "pronouncer.safetensors"} <= found


def test_a_preset_leads_the_lm_and_the_flow(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presets, "SHORTEST", 10)
    monkeypatch.setattr(presets, "CANDIDATES", 2)
    monkeypatch.setattr(presets, "TRIALS", 2)
    (tmp_path / "arrays").symlink_to(corpus.folder)
    torch.save(torch.randint(0, 27, (corpus.tokens,), dtype=torch.int16), tmp_path / "codes.pt")
    torch.save(torch.randn(len(corpus.utterances), 16), tmp_path / "embeddings.pt")
    text.write(["ɑi ehmnubr"], 100, tmp_path / "tokenizer.json")
    tokenizer = TextTokenizer.from_json(tmp_path / "tokenizer.json")
    assert TOY.lm
    arrays = presets.Arrays(tmp_path)
    found = presets.voices(SpeechLM(TOY.lm).eval(), tokenizer, arrays, TOY)
    assert sorted(found) == ["af_toy", "am_toy"]
    for name, voice in found.items():
        said = [arrays.utterances[i]["text"] for i in arrays.of(name)]
        assert voice.prompt_text in said
        assert len(voice.mel) == 2 * len(voice.speech_tokens)
        assert voice.flow_start == 0
