"""The names and shapes of tensors in published checkpoints, what they become in ours, and back.

The flow keeps its published names where it can; the LM is laid out for speed (one table of ids,
fused projections); the vocoder's weight norm is folded into plain weights.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from cosyserve.checkpoints.parts import Shapes, State, blank, shapes
from cosyserve.errors import CheckpointError
from cosyserve.models.config import (
    FlowConfig,
    LMConfig,
    LookaheadConfig,
    RotaryDiTConfig,
    VocoderConfig,
)
from cosyserve.models.flow.flow import Flow
from cosyserve.models.flow.rotary_dit import rotary_frequencies
from cosyserve.models.vocoder.hift import HiFT

QWEN = "llm.model.model."
LM_HEAD = "llm.model.lm_head.weight"  # of the text model: never used for speech
ROTARY = "decoder.estimator.rotary_embed.inv_freq"
NORM_G, NORM_V = "parametrizations.weight.original0", "parametrizations.weight.original1"


def _qwen_shapes(config: LMConfig, prefix: str) -> Shapes:
    hidden, kv = config.hidden, config.kv_heads * config.head_dim
    shapes: Shapes = {f"{prefix}norm.weight": (hidden,)}
    for i in range(config.layers):
        layer = f"{prefix}layers.{i}."
        shapes |= {
            f"{layer}self_attn.q_proj.weight": (hidden, hidden),
            f"{layer}self_attn.q_proj.bias": (hidden,),
            f"{layer}self_attn.k_proj.weight": (kv, hidden),
            f"{layer}self_attn.k_proj.bias": (kv,),
            f"{layer}self_attn.v_proj.weight": (kv, hidden),
            f"{layer}self_attn.v_proj.bias": (kv,),
            f"{layer}self_attn.o_proj.weight": (hidden, hidden),
            f"{layer}mlp.gate_proj.weight": (config.intermediate, hidden),
            f"{layer}mlp.up_proj.weight": (config.intermediate, hidden),
            f"{layer}mlp.down_proj.weight": (hidden, config.intermediate),
            f"{layer}input_layernorm.weight": (hidden,),
            f"{layer}post_attention_layernorm.weight": (hidden,),
        }
    return shapes


def _qwen_state(config: LMConfig, prefix: str, state: Mapping[str, Tensor]) -> State:
    ours: State = {"norm.weight": state[f"{prefix}norm.weight"]}
    for i in range(config.layers):
        layer = f"{prefix}layers.{i}."
        attention = [f"{layer}self_attn.{name}_proj" for name in "qkv"]
        ours |= {
            f"layers.{i}.attn_norm.weight": state[f"{layer}input_layernorm.weight"],
            f"layers.{i}.qkv.weight": torch.cat([state[f"{name}.weight"] for name in attention]),
            f"layers.{i}.qkv.bias": torch.cat([state[f"{name}.bias"] for name in attention]),
            f"layers.{i}.out.weight": state[f"{layer}self_attn.o_proj.weight"],
            f"layers.{i}.mlp_norm.weight": state[f"{layer}post_attention_layernorm.weight"],
            f"layers.{i}.gate_up.weight": torch.cat(
                [state[f"{layer}mlp.{name}_proj.weight"] for name in ("gate", "up")]
            ),
            f"layers.{i}.down.weight": state[f"{layer}mlp.down_proj.weight"],
        }
    return ours


def _published_qwen(config: LMConfig, state: Mapping[str, Tensor]) -> State:
    """What `_qwen_state` makes ours of, under the prefix of Hugging Face."""
    kv = config.kv_heads * config.head_dim
    theirs: State = {"model.norm.weight": state["norm.weight"]}
    for i in range(config.layers):
        ours, layer = f"layers.{i}.", f"model.layers.{i}."
        for last in ("weight", "bias"):
            qkv = state[f"{ours}qkv.{last}"].tensor_split((config.hidden, config.hidden + kv))
            for name, part in zip("qkv", qkv, strict=True):
                theirs[f"{layer}self_attn.{name}_proj.{last}"] = part
        gate, up = state[f"{ours}gate_up.weight"].chunk(2)
        theirs |= {
            f"{layer}self_attn.o_proj.weight": state[f"{ours}out.weight"],
            f"{layer}mlp.gate_proj.weight": gate,
            f"{layer}mlp.up_proj.weight": up,
            f"{layer}mlp.down_proj.weight": state[f"{ours}down.weight"],
            f"{layer}input_layernorm.weight": state[f"{ours}attn_norm.weight"],
            f"{layer}post_attention_layernorm.weight": state[f"{ours}mlp_norm.weight"],
        }
    return theirs


def lm_shapes(config: LMConfig) -> Shapes:
    """llm.pt of a CosyVoice folder."""
    hidden = config.hidden
    published = _qwen_shapes(config, QWEN) | {
        f"{QWEN}embed_tokens.weight": (config.text_vocab, hidden),
        LM_HEAD: (config.text_vocab, hidden),
        "speech_embedding.weight": (config.classes, hidden),
        "llm_decoder.weight": (config.classes, hidden),
    }
    if config.kind == "cosyvoice2":
        published |= {"llm_embedding.weight": (2, hidden), "llm_decoder.bias": (config.classes,)}
    return published


def lm_state(config: LMConfig, state: Mapping[str, Tensor]) -> State:
    tables = (f"{QWEN}embed_tokens.weight", "speech_embedding.weight", "llm_embedding.weight")
    head = state["llm_decoder.weight"]
    return _qwen_state(config, QWEN, state) | {
        "embedding.weight": torch.cat([state[name] for name in tables if name in state]),
        "head.weight": head,
        "head.bias": state.get("llm_decoder.bias", _no_bias(head)),
    }


def _no_bias(head: Tensor) -> Tensor:
    """CosyVoice3's head has none, which a bias of zeros is, too."""
    return head.new_zeros(len(head))


def hf_lm_shapes(config: LMConfig, rows: int) -> Shapes:
    """model.safetensors of the Hugging Face form: text, speech and special ids in one table of
    `rows` rows (padded), and a head over all of them."""
    published = _qwen_shapes(config, "model.") | {
        "model.embed_tokens.weight": (rows, config.hidden),
        "lm_head.weight": (rows, config.hidden),
    }
    return published | ({"lm_head.bias": (rows,)} if config.kind == "cosyvoice2" else {})


def hf_speech_rows(config: LMConfig) -> slice:
    return slice(config.text_vocab, config.text_vocab + config.classes)


def hf_lm_state(config: LMConfig, state: Mapping[str, Tensor]) -> State:
    speech = hf_speech_rows(config)
    head, bias = state["lm_head.weight"][speech], state.get("lm_head.bias")
    return _qwen_state(config, "model.", state) | {
        "embedding.weight": state["model.embed_tokens.weight"][: config.vocab],
        "head.weight": head,
        "head.bias": _no_bias(head) if bias is None else bias[speech],
    }


def published_hf_lm(config: LMConfig, text: int, rows: int, state: Mapping[str, Tensor]) -> State:
    """What `hf_lm_state` makes ours of: `text` rows of text, then speech and special ids, then
    padding to `rows`.

    CosyVoice2's head can say speech alone: all else has a bias of -inf. CosyVoice3's, which has no
    bias, keeps the head that Qwen2 shares with its table of text.
    """
    table, head = state["embedding.weight"], state["head.weight"]
    speech = slice(text, text + config.classes)
    embedding, weight = table.new_zeros(rows, config.hidden), head.new_zeros(rows, config.hidden)
    embedding[:text] = table[:text]
    embedding[text : text + config.vocab - config.text_vocab] = table[config.text_vocab :]
    weight[speech] = head
    theirs = _published_qwen(config, state) | {
        "model.embed_tokens.weight": embedding,
        "lm_head.weight": weight,
    }
    if config.kind == "cosyvoice3":
        weight[:text] = table[:text]
        return theirs
    bias = state["head.bias"].new_full((rows,), -torch.inf)
    bias[speech] = state["head.bias"]
    return theirs | {"lm_head.bias": bias}


def published_vllm_lm(config: LMConfig, state: Mapping[str, Tensor]) -> State:
    """The LM without its text: one table and one head over the speech classes."""
    theirs = _published_qwen(config, state) | {
        "model.embed_tokens.weight": state["embedding.weight"][hf_speech_rows(config)],
        "lm_head.weight": state["head.weight"],
    }
    return theirs | ({"lm_head.bias": state["head.bias"]} if config.kind == "cosyvoice2" else {})


def flow_shapes(config: FlowConfig) -> Shapes:
    """flow.pt."""
    ours = shapes(blank(Flow, config))
    published = {_published_flow_key(config, key): shape for key, shape in ours.items()}
    if isinstance(config.estimator, RotaryDiTConfig):
        published[ROTARY] = (config.estimator.head_dim // 2,)
    return published


def flow_state(config: FlowConfig, state: Mapping[str, Tensor]) -> State:
    """Its rotations are a formula of ours; a checkpoint with others can't be run."""
    if isinstance(config.estimator, RotaryDiTConfig):
        ours = rotary_frequencies(config.estimator.head_dim, state[ROTARY].device)
        if not torch.allclose(state[ROTARY].float(), ours, rtol=1e-2):
            raise CheckpointError(f"'{ROTARY}' are not those of CosyVoice3")
    return {key: state[_published_flow_key(config, key)] for key in shapes(blank(Flow, config))}


def _published_flow_key(config: FlowConfig, key: str) -> str:
    """CosyVoice3's flow has its encoder's only layer itself."""
    alone = isinstance(config.encoder, LookaheadConfig)
    return key.removeprefix("encoder.") if alone else key


def without_prefix(state: State) -> State:
    """The state without its trainer's prefix, which vocoders fresh from training have."""
    prefix = "generator."
    if not all(key.startswith(prefix) for key in state):
        return state
    return {key.removeprefix(prefix): value for key, value in state.items()}


def vocoder_shapes(config: VocoderConfig) -> Shapes:
    """hift.pt: each weight-normed convolution has a length and a direction for its weight."""
    module = blank(HiFT, config)
    normed = _weight_normed(module)
    published: Shapes = {}
    for key, shape in shapes(module).items():
        name, _, last = key.rpartition(".")
        if name in normed and last == "weight":
            published[f"{name}.{NORM_G}"] = (shape[0], 1, 1)
            published[f"{name}.{NORM_V}"] = shape
        else:
            published[key] = shape
    return published


def vocoder_state(state: Mapping[str, Tensor]) -> State:
    ours: State = {}
    for key, value in state.items():
        if key.endswith(NORM_V):
            name = key.removesuffix(NORM_V)
            norm = value.flatten(1).norm(dim=1)[:, None, None]
            ours[f"{name}weight"] = state[name + NORM_G] * value / norm
        elif not key.endswith(NORM_G):
            ours[key] = value
    return ours


def _weight_normed(module: HiFT) -> set[str]:
    """All convolutions but those that bring the source down to a stage's rate."""
    convolutions = (nn.Conv1d, nn.ConvTranspose1d)
    names = {name for name, part in module.named_modules() if isinstance(part, convolutions)}
    return {name for name in names if not name.startswith("source_downs")}
