"""The folder that an engine is made of, read without its weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cosyserve.deploy.engine.source import EngineSource, Quantization
from cosyserve.errors import CheckpointError
from tests import published as tiny


def changed(folder: Path, to: Path, **values: object) -> Path:
    """The folder with other values in its config.json."""
    tiny.linked(folder, to, without=["config.json"])
    config = json.loads((folder / "config.json").read_text())
    (to / "config.json").write_text(json.dumps(config | values))
    return to


def test_a_published_folder(hugging_face_lm_folder: Path) -> None:
    source = EngineSource.read(hugging_face_lm_folder)
    assert source.lm == tiny.hugging_face_config()
    assert source.quantization is None
    assert source.tokenizer().decode(source.tokenizer().encode("Tokens.")) == "Tokens."


def test_a_cosyvoice3_folder_is_a_qwen2_as_converters_know_it(
    hugging_face_lm3_folder: Path, cosyvoice3_folder: Path
) -> None:
    source = EngineSource.read(hugging_face_lm3_folder)
    assert source.lm.kind == "cosyvoice3"
    config = json.loads(source.config_file.read_text())
    assert (config["architectures"], config["tie_word_embeddings"]) == (["Qwen2ForCausalLM"], False)
    weights = load_file(hugging_face_lm3_folder / "model.safetensors")
    assert "lm_head.bias" not in weights
    rows = (config["vocab_size"], source.lm.hidden)
    assert weights["lm_head.weight"].shape == weights["model.embed_tokens.weight"].shape == rows
    published = torch.load(cosyvoice3_folder / "llm.pt", weights_only=True)
    speech = slice(source.lm.text_vocab, source.lm.text_vocab + source.lm.classes)
    for theirs, ours in (
        ("llm_decoder.weight", "lm_head.weight"),
        ("speech_embedding.weight", "model.embed_tokens.weight"),
    ):
        assert torch.equal(weights[ours][speech], published[theirs])


def test_other_weights_have_another_digest(hugging_face_lm_folder: Path, tmp_path: Path) -> None:
    source = EngineSource.read(hugging_face_lm_folder)
    same = EngineSource.read(tiny.linked(hugging_face_lm_folder, tmp_path / "same"))
    other = EngineSource.read(changed(hugging_face_lm_folder, tmp_path / "other", more=1))
    assert source.digest() == same.digest() != other.digest()


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ({"quant_method": "gptq"}, Quantization("gptq", 128, False, False)),
        (
            {"quant_method": "gptq", "group_size": 64, "sym": True, "desc_act": True},
            Quantization("gptq", 64, True, True),
        ),
        ({"quant_method": "awq", "zero_point": True}, Quantization("awq", 128, True, False)),
    ],
)
def test_quantized_weights_are_seen(
    hugging_face_lm_folder: Path, tmp_path: Path, stored: dict[str, object], expected: Quantization
) -> None:
    folder = changed(hugging_face_lm_folder, tmp_path / "lm", quantization_config=stored)
    assert EngineSource.read(folder).quantization == expected


@pytest.mark.parametrize(
    ("stored", "complaint"),
    [
        ({"quant_method": "fp8"}, "quant_method must be gptq or awq, got 'fp8'"),
        ("gptq", "quant_method must be gptq or awq, got None"),
        ({"quant_method": "gptq", "group_size": -1}, "group_size must be a whole number"),
    ],
)
def test_odd_quantizations_are_refused(
    hugging_face_lm_folder: Path, tmp_path: Path, stored: object, complaint: str
) -> None:
    folder = changed(hugging_face_lm_folder, tmp_path / "lm", quantization_config=stored)
    with pytest.raises(CheckpointError, match=complaint):
        EngineSource.read(folder)


def test_other_folders_are_told_the_way(cosyvoice2_folder: Path, tmp_path: Path) -> None:
    for folder in (cosyvoice2_folder, tmp_path / "nowhere"):
        with pytest.raises(CheckpointError, match=f"cosyserve prepare {folder} .* --form hf"):
            EngineSource.read(folder)
