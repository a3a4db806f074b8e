"""The speech LM for other runtimes: read back it is the same, bit for bit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from cosyserve.checkpoints import native, published, testmodel
from cosyserve.checkpoints.load import SHIPPED_FOLDER
from cosyserve.checkpoints.parts import Parts
from cosyserve.checkpoints.prepare import prepare
from cosyserve.checkpoints.published.lm_forms import FORMS, speech_names, write_lm
from cosyserve.errors import CheckpointError
from tests import published as tiny

ROWS = 6912  # 320 text ids, 6564 classes, sos, task, and padding to a multiple of 128
TEXT = "Tokens 希望![breath] and <|endofprompt|> more."


def prepared(source: Path, out: Path, form: str = "hf", dtype: str | None = None) -> Path:
    prepare([str(source)], out, dtype, form=form, progress=False)
    return out


@pytest.fixture(scope="module")
def cosyvoice2(cosyvoice2_folder: Path) -> Parts:
    return published.read(cosyvoice2_folder)


def written(parts: Parts, out: Path, form: str = "hf") -> Path:
    write_lm(parts, form, out, "test")
    return out


def config_of(folder: Path, name: str = "config.json") -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / name).read_text("utf-8"))
    return data


def bits(tensor: Tensor) -> Tensor:
    """What is compared has every bit: -0.0 is not 0.0."""
    return tensor.contiguous().view(torch.uint8)


def same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> bool:
    return ours.keys() == theirs.keys() and all(
        ours[key].dtype == theirs[key].dtype and torch.equal(bits(ours[key]), bits(theirs[key]))
        for key in ours
    )


def without_spare_rows(parts: Parts, text: int) -> dict[str, Tensor]:
    """The LM's state without the rows of text that no text has."""
    lm, state = parts.config.lm, parts.states["lm"]
    assert lm
    table = state["embedding.weight"]
    return state | {"embedding.weight": torch.cat([table[:text], table[lm.text_vocab :]])}


@pytest.mark.parametrize("dtype", [None, "bfloat16", "float16"])
def test_a_published_folder_comes_back(
    tmp_path: Path, cosyvoice2: Parts, dtype: str | None
) -> None:
    original = cosyvoice2.cast(getattr(torch, dtype)) if dtype else cosyvoice2
    hf = published.read(written(original, tmp_path / "hf"))
    assert same(hf.states["lm"], without_spare_rows(original, tiny.TEXT_IDS))
    assert hf.config.lm == replace(tiny.LM, text_vocab=tiny.TEXT_IDS)
    assert hf.names == {"lm"}
    assert hf.tokenizer
    assert original.tokenizer
    assert hf.tokenizer.encode(TEXT) == original.tokenizer.encode(TEXT)
    assert hf.tokenizer.vocab_size == original.tokenizer.vocab_size


@pytest.mark.parametrize("form", ["hf", "native"])
def test_a_cosyvoice3_folder_comes_back(tmp_path: Path, cosyvoice3_folder: Path, form: str) -> None:
    original = published.read(cosyvoice3_folder)
    if form == "native":
        native.write(original, tmp_path / form)
        back, text = native.read(tmp_path / form), tiny.LM3.text_vocab
        assert back.config == original.config
    else:
        back, text = published.read(written(original, tmp_path / form)), 581
        assert not config_of(tmp_path / form)["use_bias"]
        ends = config_of(tmp_path / form, "generation_config.json")["eos_token_id"]
        assert ends == list(range(text + 6561, text + 6761))
        head = load_file(tmp_path / form / "model.safetensors")["lm_head.weight"]
        assert torch.equal(head[:text], original.states["lm"]["embedding.weight"][:text])
    assert same(back.states["lm"], without_spare_rows(original, text))
    assert back.config.lm == replace(tiny.LM3, text_vocab=text)
    assert back.config.family == "cosyvoice3"
    assert back.tokenizer
    assert original.tokenizer
    for words in (TEXT, "[EH1][j][ǐ] <|endofsystem|>"):
        assert back.tokenizer.encode(words) == original.tokenizer.encode(words)


def test_a_native_folder_comes_back(tmp_path: Path) -> None:
    native.write(testmodel.random_parts(), tmp_path / "native")
    prepared(tmp_path / "native", tmp_path / "hf")
    back = native.read(prepared(tmp_path / "hf", tmp_path / "back", "native"))
    parts = native.read(tmp_path / "native")
    assert same(back.states["lm"], parts.states["lm"])
    assert back.config.lm == parts.config.lm
    assert back.tokenizer
    assert parts.tokenizer
    assert back.tokenizer.encode(TEXT) == parts.tokenizer.encode(TEXT)


def test_what_is_written_is_the_published_form(
    tmp_path: Path, cosyvoice2: Parts, hugging_face_lm_folder: Path
) -> None:
    """The test's published folder has more rows where no id is; all else is equal."""
    folder = written(cosyvoice2, tmp_path / "hf")
    ours = load_file(folder / "model.safetensors")
    theirs = load_file(hugging_face_lm_folder / "model.safetensors")
    used = tiny.hugging_face_config().vocab
    for state in (ours, theirs):
        for key in ("model.embed_tokens.weight", "lm_head.weight", "lm_head.bias"):
            state[key] = state[key][:used].clone()
    assert same(ours, theirs)
    names = {*speech_names(tiny.LM)}
    ids = config_of(hugging_face_lm_folder, "added_tokens.json")
    assert config_of(folder, "added_tokens.json") == ids
    assert names <= ids.keys()
    expected = config_of(hugging_face_lm_folder) | {"vocab_size": ROWS}
    assert config_of(folder).items() >= expected.items()


def test_a_form_of_a_form_is_the_same(tmp_path: Path, cosyvoice2_folder: Path) -> None:
    once = prepared(cosyvoice2_folder, tmp_path / "once", dtype="bfloat16")
    twice = prepared(once, tmp_path / "twice")
    assert {file.name for file in once.iterdir()} == {file.name for file in twice.iterdir()}
    for file in once.iterdir():
        assert file.read_bytes() == (twice / file.name).read_bytes(), file.name


def test_the_hugging_face_files_say_how_to_speak(tmp_path: Path, cosyvoice2: Parts) -> None:
    folder = written(cosyvoice2.cast(torch.bfloat16), tmp_path / "hf")
    end = tiny.TEXT_IDS + tiny.LM.speech_tokens
    config = config_of(folder)
    assert config["architectures"] == ["Qwen2ForCausalLM"]
    assert (config["vocab_size"], config["eos_token_id"]) == (ROWS, end)
    assert (config["tie_word_embeddings"], config["use_bias"]) == (False, True)
    assert config["torch_dtype"] == "bfloat16"
    generation = config_of(folder, "generation_config.json")
    assert generation["eos_token_id"] == [end, end + 1, end + 2]
    assert (generation["temperature"], generation["top_p"], generation["top_k"]) == (1.0, 0.8, 25)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = tokenizer.encode("<|sos|>ab<|task_id|><|s_0|><|s_6560|><|eos1|>").ids
    assert (ids[0], ids[-4:]) == (end + 3, [end + 4, tiny.TEXT_IDS, end - 1, end])
    assert tokenizer.decode([tiny.TEXT_IDS, end - 1], skip_special_tokens=True) == (
        "<|s_0|><|s_6560|>"  # servers skip special tokens, and speech is none
    )
    described = config_of(folder, "tokenizer_config.json")
    assert described["added_tokens_decoder"][str(end)]["content"] == "<|eos1|>"
    assert "<|sos|>" in described["chat_template"]


def test_the_form_of_vllm(tmp_path: Path, cosyvoice2: Parts) -> None:
    folder = written(cosyvoice2, tmp_path / "vllm", "vllm")
    state, source = load_file(folder / "model.safetensors"), tiny.lm_state()
    layers = {
        key.replace(tiny.keys.QWEN, "model."): value
        for key, value in source.items()
        if key.startswith((f"{tiny.keys.QWEN}layers.", f"{tiny.keys.QWEN}norm."))
    }
    speech = {
        "model.embed_tokens.weight": source["speech_embedding.weight"],
        "lm_head.weight": source["llm_decoder.weight"],
        "lm_head.bias": source["llm_decoder.bias"],
    }
    assert same(state, layers | speech)
    config = config_of(folder)
    assert config["architectures"] == ["CosyVoice2ForCausalLM"]
    assert (config["vocab_size"], config["tie_word_embeddings"]) == (6564, False)
    assert config["use_bias"] is True
    everything = config | config_of(folder, "generation_config.json")
    assert not {"eos_token_id", "bos_token_id"} & everything.keys()


@pytest.mark.parametrize("form", FORMS)
def test_what_has_no_such_form_is_refused(
    tmp_path: Path, token2wav_folder: Path, form: str
) -> None:
    with pytest.raises(CheckpointError, match=f"token2wav: there is no speech LM .* {form}"):
        prepared(token2wav_folder, tmp_path / "out", form)
    nano = native.read(SHIPPED_FOLDER, only=("lm",))
    with pytest.raises(CheckpointError, match="nano: its LM reads phonemes"):
        write_lm(nano, form, tmp_path / "out", "nano")
    assert list(tmp_path.iterdir()) == []


def test_a_tokenizer_that_does_not_fit_leaves_nothing(tmp_path: Path) -> None:
    parts = testmodel.random_parts()
    assert parts.config.lm
    small = replace(parts.config, lm=replace(parts.config.lm, text_vocab=100))
    with pytest.raises(CheckpointError, match="276 ids, the LM 100"):
        write_lm(replace(parts, config=small), "hf", tmp_path / "out", "test")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_form_is_named(tmp_path: Path, cosyvoice2_folder: Path) -> None:
    with pytest.raises(CheckpointError, match="form must be one of native, hf, vllm, got 'gguf'"):
        prepared(cosyvoice2_folder, tmp_path / "out", "gguf")
