"""Tiny models on disk in the published layouts, with the weights of the fill rule.

The CosyVoice2 folder and the Hugging Face folder hold the same speech LM. Knows no test.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch import Tensor

from cosyserve.checkpoints.published import keys as keys
from cosyserve.models.config import (
    CamPlusConfig,
    DiTConfig,
    EncoderConfig,
    FlowConfig,
    LMConfig,
    LookaheadConfig,
    RotaryDiTConfig,
    S3Config,
    UNetConfig,
    VocoderConfig,
)
from cosyserve.models.encoders.campplus import CamPlus
from cosyserve.models.encoders.s3 import S3Tokenizer
from cosyserve.text.tokens.tokenizer import SPECIAL_TOKENS
from tests.checkpoints.onnx.onnx_export import export_campplus, export_s3, randomised
from tests.golden.fill import fill
from tests.golden.weights import filled
from tests.published_yaml import COSYVOICE2_YAML, COSYVOICE3_YAML, TOKEN2WAV_YAML

VOCABULARY = 300
TEXT_IDS = VOCABULARY + len(SPECIAL_TOKENS)
LM = LMConfig(32, 48, 2, 4, 2, text_vocab=352)  # padded, as the published table is
UNET_FLOW = FlowConfig(EncoderConfig(32, 2, 48, 1, 4), UNetConfig("unet", 16, 2, 8, 1, 1))
DIT_FLOW = FlowConfig(EncoderConfig(32, 2, 48, 1, 1), DiTConfig("dit", 32, 2, 2, 16, 2.0))
VOCODER = VocoderConfig(
    base=16,
    f0_channels=16,
    upsample_rates=(8, 15),
    upsample_kernels=(16, 21),
    kernels=(3, 7),
    dilations=((1, 3), (1,)),
    source_kernels=(7, 11),
    source_dilations=((1,), (1, 3)),
)
S3 = S3Config(state=64, heads=1, layers=1, fsmn_kernel=5)
LM3 = replace(LM, text_vocab=608, kind="cosyvoice3")
ROTARY_FLOW = FlowConfig(
    LookaheadConfig(channels=24), RotaryDiTConfig(hidden=32, depth=2, heads=2, head_dim=16)
)
CAUSAL_VOCODER = replace(VOCODER, causal=True)
S3_V3 = replace(S3, layers=2, attn_norm_eps=1e-5)
CAMPLUS = CamPlusConfig(
    head_channels=4, init_channels=8, growth=4, bn_size=2, block_layers=(2, 1, 1)
)
END_SCALE = 8.0  # where there is no bias: about every third draw ends then
END_BIAS = 16.0  # the largest of so many random logits is about 15
HF_ROWS = 7040  # 320 text ids, 6564 classes, sos, task, and padding to a multiple of 128
SENTENCES = (
    "The quick brown fox jumps over the lazy dog, and then over another lazy dog.",
    "Speech tokens become frames, and frames become samples that somebody hears.",
    "希望你以后能够做的比我还好呦。今天天气真是太好了，阳光灿烂心情超级棒。",
)


def lm_state() -> dict[str, Tensor]:
    """llm.pt; the text model's head is the table of text embeddings itself. It comes to an end
    soon, as weights that were trained do."""
    state = filled(keys.lm_shapes(LM), 0, fill)
    state["llm_decoder.bias"][LM.speech_tokens] += END_BIAS
    return state | {keys.LM_HEAD: state[f"{keys.QWEN}embed_tokens.weight"]}


def flow_state(config: FlowConfig) -> dict[str, Tensor]:
    return filled(keys.flow_shapes(config), 0, fill)


def vocoder_state() -> dict[str, Tensor]:
    return filled(keys.vocoder_shapes(VOCODER), 0, fill)


def write_cosyvoice2(folder: Path) -> None:
    text = folder / "CosyVoice-BlankEN"
    text.mkdir(parents=True)
    write_vocabulary(text)
    (text / "config.json").write_text(json.dumps(qwen_config(LM.text_vocab)))
    (folder / "cosyvoice2.yaml").write_text(COSYVOICE2_YAML)
    torch.save(lm_state(), folder / "llm.pt")
    torch.save(flow_state(UNET_FLOW), folder / "flow.pt")
    torch.save(vocoder_state(), folder / "hift.pt")
    write_prompt_encoders(folder, "speech_tokenizer_v2.onnx")


def write_cosyvoice3(folder: Path) -> None:
    text = folder / "CosyVoice-BlankEN"
    text.mkdir(parents=True)
    write_vocabulary(text)
    (text / "config.json").write_text(json.dumps(qwen_config(LM3.text_vocab)))
    (folder / "cosyvoice3.yaml").write_text(COSYVOICE3_YAML)
    for salt, name in enumerate(("llm.pt", "llm.rl.pt")):
        state = filled(keys.lm_shapes(LM3), salt, fill)
        state["llm_decoder.weight"][LM3.eos] *= END_SCALE
        torch.save(state | {keys.LM_HEAD: state[f"{keys.QWEN}embed_tokens.weight"]}, folder / name)
    torch.save(flow_state(ROTARY_FLOW), folder / "flow.pt")
    torch.save(filled(keys.vocoder_shapes(CAUSAL_VOCODER), 0, fill), folder / "hift.pt")
    write_prompt_encoders(folder, "speech_tokenizer_v3.onnx", S3_V3)


def write_token2wav(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "flow.yaml").write_text(TOKEN2WAV_YAML)
    torch.save(flow_state(DIT_FLOW), folder / "flow.pt")
    torch.save(vocoder_state(), folder / "hift.pt")
    write_prompt_encoders(folder, "speech_tokenizer_v2_25hz.onnx")


def write_hugging_face_lm(folder: Path) -> None:
    """One table and one head over text, speech and special ids, both with rows to spare."""
    folder.mkdir(parents=True)
    write_vocabulary(folder)
    (folder / "config.json").write_text(json.dumps(qwen_config(HF_ROWS)))
    ids = {name: TEXT_IDS + number for number, name in enumerate(speech_names())}
    special = {name: VOCABULARY + number for number, name in enumerate(SPECIAL_TOKENS)}
    (folder / "added_tokens.json").write_text(json.dumps(special | ids))
    save_file(hugging_face_state(lm_state()), folder / "model.safetensors")


def hugging_face_state(state: dict[str, Tensor]) -> dict[str, Tensor]:
    moved = {
        key.replace(keys.QWEN, "model."): value
        for key, value in state.items()
        if key.startswith(f"{keys.QWEN}layers.") or key == f"{keys.QWEN}norm.weight"
    }
    table = fill("padding.embedding.weight", (HF_ROWS, LM.hidden), 0)
    rows = torch.from_numpy(table)
    rows[:TEXT_IDS] = state[f"{keys.QWEN}embed_tokens.weight"][:TEXT_IDS]
    speech = slice(TEXT_IDS, TEXT_IDS + LM.classes)
    rows[speech] = state["speech_embedding.weight"]
    rows[speech.stop : speech.stop + 2] = state["llm_embedding.weight"]
    head, bias = torch.zeros(HF_ROWS, LM.hidden), torch.full((HF_ROWS,), -torch.inf)
    head[speech], bias[speech] = state["llm_decoder.weight"], state["llm_decoder.bias"]
    return moved | {
        "model.embed_tokens.weight": rows,
        "lm_head.weight": head,
        "lm_head.bias": bias,
    }


def speech_names() -> list[str]:
    speech = [f"<|s_{token}|>" for token in range(LM.speech_tokens)]
    return [*speech, "<|eos1|>", "<|eos2|>", "<|eos3|>", "<|sos|>", "<|task_id|>"]


def qwen_config(rows: int) -> dict[str, object]:
    return {
        "model_type": "qwen2",
        "hidden_size": LM.hidden,
        "intermediate_size": LM.intermediate,
        "num_hidden_layers": LM.layers,
        "num_attention_heads": LM.heads,
        "num_key_value_heads": LM.kv_heads,
        "rms_norm_eps": LM.norm_eps,
        "rope_theta": LM.rope_theta,
        "vocab_size": rows,
    }


def write_vocabulary(folder: Path) -> None:
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    bpe.train_from_iterator(SENTENCES, trainer)
    bpe.model.save(str(folder))


def write_prompt_encoders(folder: Path, tokenizer: str, sizes: S3Config = S3) -> None:
    export_s3(randomised(S3Tokenizer(sizes)), folder / tokenizer)
    export_campplus(randomised(CamPlus(CAMPLUS)), folder / "campplus.onnx")


def linked(folder: Path, to: Path, without: Iterable[str] = ()) -> Path:
    """A folder whose files are links to those of another: cheap to make, safe to change."""
    to.mkdir(parents=True)
    for path in folder.iterdir():
        if path.name in without:
            continue
        if path.is_dir():
            linked(path, to / path.name)
        else:
            os.symlink(path, to / path.name)
    return to


def hugging_face_config() -> LMConfig:
    return replace(LM, text_vocab=TEXT_IDS)
