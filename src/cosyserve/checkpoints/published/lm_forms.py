"""The speech LM in the forms that other runtimes read.

`hf` is that of `cosyvoice2_llm` and its successor, which transformers, TensorRT-LLM, vLLM, SGLang
read as a Qwen2 whose vocabulary has names for speech tokens; `read` takes it back, bit for bit.
`vllm` is what the original gives to vLLM: no text, for prompts that are embeddings.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from cosyserve.checkpoints.native import model_written_whole, save_state
from cosyserve.checkpoints.parts import Parts, State
from cosyserve.checkpoints.published import keys
from cosyserve.contracts import Sampling
from cosyserve.errors import CheckpointError
from cosyserve.models.config import LMConfig
from cosyserve.text import TextTokenizer

FORMS = ("hf", "vllm")
PAD_ROWS = 128  # the table's rows are a multiple of it
MAX_POSITIONS = 32_768
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message['role'] == 'user' -%}{{ '<|sos|>' + message['content'] + '<|task_id|>' }}"
    "{%- elif message['role'] == 'assistant' -%}{{ message['content'] }}{%- endif -%}"
    "{%- endfor -%}"
)


def write_lm(parts: Parts, form: str, folder: Path, origin: str) -> None:
    """Writes the parts' LM all or nothing; their other parts have no place in these forms.
    `origin` names the parts in errors."""
    lm, state, tokenizer = _speech_lm(parts, form, origin)
    with model_written_whole(folder) as partial:
        if form == "vllm":
            _write_vllm(lm, state, parts.config.sampling, partial)
        else:
            _write_hugging_face(lm, state, parts.config.sampling, tokenizer, partial)


def speech_names(lm: LMConfig) -> list[str]:
    """The names of the ids behind the text, in their order."""
    if lm.kind == "cosyvoice3":
        names = [f"<|s_{token}|>" for token in range(lm.classes)]
        names[lm.speech_tokens : lm.fill + 1] = ["<|sos|>", "<|eos1|>", "<|task_id|>", "<|fill|>"]
        return names
    speech = [f"<|s_{token}|>" for token in range(lm.speech_tokens)]
    return [*speech, "<|eos1|>", "<|eos2|>", "<|eos3|>", "<|sos|>", "<|task_id|>"]


def _speech_lm(parts: Parts, form: str, origin: str) -> tuple[LMConfig, State, TextTokenizer]:
    lm, state, tokenizer = parts.config.lm, parts.states.get("lm"), parts.tokenizer
    if lm is None or state is None or tokenizer is None:
        raise CheckpointError(
            f"{origin}: there is no speech LM in it, and the form {form} is that of one: "
            "give a folder with an LM, or choose --form native"
        )
    if tokenizer.pronouncer:
        raise CheckpointError(
            f"{origin}: its LM reads phonemes, which no reader of the form {form} makes of a "
            "text: choose --form native, or a CosyVoice2 model"
        )
    return lm, state, tokenizer


def _write_hugging_face(
    lm: LMConfig, state: State, sampling: Sampling, tokenizer: TextTokenizer, folder: Path
) -> None:
    first = _write_tokenizer(tokenizer, speech_names(lm), folder)
    if first > lm.text_vocab:
        raise CheckpointError(f"the tokenizer has {first} ids, the LM {lm.text_vocab} of text")
    end = first + lm.eos
    rows = -(-(first + lm.vocab - lm.text_vocab) // PAD_ROWS) * PAD_ROWS
    save_state(keys.published_hf_lm(lm, first, rows, state), folder / "model.safetensors")
    config = _config(lm, rows, state) | {"eos_token_id": end}
    _write_json(folder / "config.json", {"architectures": ["Qwen2ForCausalLM"]} | config)
    ends = {"eos_token_id": [first + id_ for id_ in lm.control], "pad_token_id": end}
    _write_json(folder / "generation_config.json", _generation(sampling) | ends)


def _write_vllm(lm: LMConfig, state: State, sampling: Sampling, folder: Path) -> None:
    save_state(keys.published_vllm_lm(lm, state), folder / "model.safetensors")
    config = _config(lm, lm.classes, state)
    # A head without a bias is one that vLLM knows.
    name = "CosyVoice2ForCausalLM" if config["use_bias"] else "Qwen2ForCausalLM"
    _write_json(folder / "config.json", {"architectures": [name]} | config)
    _write_json(folder / "generation_config.json", _generation(sampling))


def _write_tokenizer(tokenizer: TextTokenizer, names: list[str], folder: Path) -> int:
    """Writes the tokenizer with names for speech -> the id of the first of them.

    `vocab.json` and `merges.txt` have the text alone, so that whoever reads those gets the text
    tokenizer back. Names are no special tokens: servers leave those out of their answers.
    """
    tokenizer.save(folder / "tokenizer.json")
    bpe = Tokenizer.from_file(str(folder / "tokenizer.json"))
    bpe.model.save(str(folder))
    bpe.add_tokens([AddedToken(name, normalized=False) for name in names])
    bpe.save(str(folder / "tokenizer.json"))
    ids = bpe.get_vocab()
    added = {name: ids[name] for name in (*tokenizer.special_tokens, *names)}
    first: int = added[names[0]]
    if [added[name] for name in names] != list(range(first, first + len(names))):
        raise CheckpointError("the tokenizer has speech tokens of its own, out of order")
    _write_json(folder / "added_tokens.json", added)
    end_of_text, *others = tokenizer.special_tokens
    special = {"eos_token": end_of_text, "pad_token": end_of_text}
    special_map = special | {"additional_special_tokens": others}
    _write_json(folder / "special_tokens_map.json", special_map)
    decoder = {
        id_: {
            "content": name,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": name in tokenizer.special_tokens,
        }
        for name, id_ in added.items()
    }
    config = {
        "tokenizer_class": "Qwen2Tokenizer",
        "add_prefix_space": False,
        "add_bos_token": False,
        "bos_token": None,
        "unk_token": None,
        "errors": "replace",
        "split_special_tokens": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": MAX_POSITIONS,
        "chat_template": CHAT_TEMPLATE,
        "added_tokens_decoder": decoder,
    }
    _write_json(folder / "tokenizer_config.json", config | special_map)
    return first


def _config(lm: LMConfig, rows: int, state: State) -> dict[str, Any]:
    return {
        "model_type": "qwen2",
        "hidden_size": lm.hidden,
        "intermediate_size": lm.intermediate,
        "num_hidden_layers": lm.layers,
        "num_attention_heads": lm.heads,
        "num_key_value_heads": lm.kv_heads,
        "hidden_act": "silu",
        "rms_norm_eps": lm.norm_eps,
        "rope_theta": lm.rope_theta,
        "max_position_embeddings": MAX_POSITIONS,
        "use_sliding_window": False,
        "attention_dropout": 0.0,
        "vocab_size": rows,
        "tie_word_embeddings": False,
        "use_bias": lm.kind == "cosyvoice2",  # of the head: a Qwen2 of text has none
        "use_cache": True,
        # Whose form this is: without it, transformers 5 warns of the tokenizer of another family.
        "transformers_version": "4.51.3",
        "torch_dtype": str(state["head.weight"].dtype).removeprefix("torch."),
    }


def _generation(sampling: Sampling) -> dict[str, Any]:
    return {
        "do_sample": True,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
    }


def _write_json(file: Path, data: dict[Any, Any]) -> None:
    file.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", "utf-8")
