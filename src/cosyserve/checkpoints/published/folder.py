"""Reading published folders: CosyVoice2 and 3, their Hugging Face LMs, Step-Audio2's token2wav.

Nothing in a folder is executed: yaml is read as data, pickles as plain tensors.
Every problem is one CheckpointError that names the file and the key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cosyserve.checkpoints import native
from cosyserve.checkpoints.config_data import as_checkpoint_error, check_int, short_repr
from cosyserve.checkpoints.onnx.encoders import load_speaker_encoder, load_speech_tokenizer
from cosyserve.checkpoints.onnx.sizes import campplus_sizes, s3_sizes
from cosyserve.checkpoints.parts import (
    MODULES,
    Parts,
    State,
    check,
    check_finite,
    leave_blank,
    voice_files,
)
from cosyserve.checkpoints.plain_files import read_json, read_state, read_tensors, require_file
from cosyserve.checkpoints.published import keys
from cosyserve.checkpoints.published.config import (
    ConfigReader,
    conformer,
    dit,
    flow,
    lookahead,
    qwen,
    rotary_dit,
    unet,
    vocoder,
)
from cosyserve.choices import LM_FILE
from cosyserve.errors import CheckpointError
from cosyserve.models.config import FlowConfig, LMConfig, ModelConfig
from cosyserve.models.config.lm import LMKind
from cosyserve.models.encoders.prompt_encoders import TorchSpeakerEncoder, TorchSpeechTokenizer
from cosyserve.text import COSYVOICE3_TOKENS, SPECIAL_TOKENS, TextTokenizer

REFUSED = {
    "cosyvoice.yaml": "a first-generation CosyVoice (300M, 22.05 kHz): its speech LM, tokens and "
    "flow are other networks, which cosyserve does not have; use CosyVoice2-0.5B",
}

YAML: dict[LMKind, str] = {"cosyvoice2": "cosyvoice2.yaml", "cosyvoice3": "cosyvoice3.yaml"}
SPECIAL_TOKENS_OF: dict[LMKind, tuple[str, ...]] = {
    "cosyvoice2": SPECIAL_TOKENS,
    "cosyvoice3": COSYVOICE3_TOKENS,
}
TOKENIZER_V3 = "speech_tokenizer_v3.onnx"

# Of each part: names of its file, what reads its sizes, what loads it.
PROMPT_ENCODERS: dict[str, tuple[tuple[str, ...], Callable[[Path], Any], Callable[..., Any]]] = {
    "speech_tokenizer": (
        ("speech_tokenizer_v2.onnx", "speech_tokenizer_v2_25hz.onnx", TOKENIZER_V3),
        s3_sizes,
        load_speech_tokenizer,
    ),
    "speaker_encoder": (("campplus.onnx",), campplus_sizes, load_speaker_encoder),
}


def read(folder: Path, only: Collection[str] = tuple(MODULES), *, lm_file: str = LM_FILE) -> Parts:
    """Any folder that we know, native ones included, with the weights of the parts in `only`;
    `lm_file` names the LM's file in a CosyVoice folder, which may have several."""
    try:
        if native.is_native(folder):
            if lm_file != LM_FILE:
                raise CheckpointError(
                    f"{folder}: a prepared folder has one LM: choose {lm_file} when you prepare it"
                )
            return native.read(folder, only)
        return replace(_read(folder, only, lm_file).only(only), voices=voice_files(folder))
    except OSError as error:
        raise CheckpointError(
            f"{error.filename or folder}: can't be read: {error.strerror}"
        ) from error


def _read(folder: Path, only: Collection[str], lm_file: str) -> Parts:
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: no such folder")
    for kind, yaml in YAML.items():
        if (folder / yaml).exists():
            return _cosyvoice(folder, kind, lm_file if "lm" in only else None)
    if lm_file != LM_FILE:
        raise CheckpointError(f"{folder}: only a CosyVoice folder has a choice of LMs: {lm_file}")
    for name, why in REFUSED.items():
        if (folder / name).exists():
            raise CheckpointError(f"{folder / name}: {why}")
    if (folder / "flow.yaml").exists():
        return _step_audio2(folder)
    if (folder / "config.json").exists() and (folder / "model.safetensors").exists():
        return _hugging_face_lm(folder)
    names = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
    raise CheckpointError(
        f"{folder}: not a model folder. Expected cosyvoice2.yaml, cosyvoice3.yaml, flow.yaml "
        f"(Step-Audio2 token2wav), config.json with model.safetensors (the LM from Hugging Face) "
        f"or a folder written by `cosyserve prepare`; found {names}"
    )


def _cosyvoice(folder: Path, kind: LMKind, lm_file: str | None) -> Parts:
    """CosyVoice2 or CosyVoice3; without the weights of its LM if that is None."""
    reader = ConfigReader.of_yaml(folder / YAML[kind])
    text = folder / "CosyVoice-BlankEN"
    tokenizer = read_tokenizer(text, SPECIAL_TOKENS_OF[kind])
    lm = qwen(text / "config.json", reader.size("llm.speech_token_size", 6561), kind)
    if tokenizer.vocab_size > lm.text_vocab:
        raise CheckpointError(
            f"{text / 'config.json'}: vocab_size {lm.text_vocab} is smaller than the "
            f"{tokenizer.vocab_size} ids of vocab.json and the special tokens"
        )
    lm_states = {"lm": _lm_state(folder / lm_file, lm)} if lm_file else {}
    with as_checkpoint_error(str(reader.file)):
        if kind == "cosyvoice3":
            sizes = flow(reader, lookahead(reader), rotary_dit(reader))
        else:
            sizes = flow(reader, conformer(reader), unet(reader))
    parts = _token2wav(folder, reader, sizes, kind)
    states = parts.states | lm_states
    with as_checkpoint_error(str(reader.file)):
        config = replace(parts.config, name=f"{kind}-0.5b", lm=lm)
    return replace(parts, config=config, states=states, tokenizer=tokenizer)


def _lm_state(file: Path, lm: LMConfig) -> State:
    state = read_state(file)
    shapes = keys.lm_shapes(lm)
    if keys.LM_HEAD not in state:
        del shapes[keys.LM_HEAD]
    check(str(file), state, shapes)
    check_finite(str(file), state)
    return keys.lm_state(lm, state)


def _step_audio2(folder: Path) -> Parts:
    reader = ConfigReader.of_yaml(folder / "flow.yaml")
    with as_checkpoint_error(str(reader.file)):
        sizes = flow(reader, conformer(reader), dit(reader))
    return _token2wav(folder, reader, sizes, "cosyvoice2")


def _token2wav(folder: Path, reader: ConfigReader, flow_sizes: FlowConfig, family: str) -> Parts:
    """Flow, vocoder, speech tokenizer and speaker encoder: the same files in all families."""
    with as_checkpoint_error(str(reader.file)):
        vocoder_sizes = vocoder(reader, causal=family == "cosyvoice3")
        config = ModelConfig(family=family, flow=flow_sizes, vocoder=vocoder_sizes)
        flow_shapes = keys.flow_shapes(flow_sizes)
        vocoder_shapes = keys.vocoder_shapes(vocoder_sizes)
    flow_state = read_state(folder / "flow.pt")
    check(str(folder / "flow.pt"), flow_state, flow_shapes)
    check_finite(str(folder / "flow.pt"), flow_state)
    hift = keys.without_prefix(read_state(folder / "hift.pt"))
    check(str(folder / "hift.pt"), hift, vocoder_shapes)
    check_finite(str(folder / "hift.pt"), hift)
    hift = keys.vocoder_state(hift)  # may divide by zero
    check_finite(str(folder / "hift.pt"), hift)
    with as_checkpoint_error(str(folder / "flow.pt")):
        flow_state = keys.flow_state(flow_sizes, flow_state)
    states = {"flow": flow_state, "vocoder": hift}
    return _prompt_encoders(folder, Parts(config, states))


def _prompt_encoders(folder: Path, parts: Parts) -> Parts:
    """Adds the parts that make voices: states where torch runs them, else their ONNX files."""
    states, onnx = dict(parts.states), dict(parts.onnx)
    config = parts.config
    files = []
    for part, (names, read_sizes, load) in PROMPT_ENCODERS.items():
        file = _first(folder, *names)
        if file is None:
            continue
        require_file(file)
        with as_checkpoint_error(str(file)):
            sizes = read_sizes(file)
            if file.name == TOKENIZER_V3:
                sizes = replace(sizes, attn_norm_eps=1e-5)
            config = replace(config, **{part: sizes})
            encoder = load(file, sizes)
        if isinstance(encoder, TorchSpeechTokenizer | TorchSpeakerEncoder):
            states[part] = encoder.module.state_dict()
            leave_blank(encoder.module, sizes)
        else:
            onnx[part] = file
        files.append(file)
    return replace(
        parts, config=replace(config, fingerprint=_fingerprint(files)), states=states, onnx=onnx
    )


def _hugging_face_lm(folder: Path) -> Parts:
    """One table for text, speech and special ids."""
    lm, rows = hugging_face_sizes(folder)
    file = folder / "model.safetensors"
    state = read_tensors(file)
    check(str(file), state, keys.hf_lm_shapes(lm, rows))
    ours = keys.hf_lm_state(lm, state)
    check_finite(str(file), ours)  # the bias of all that is no speech may be -inf
    config = ModelConfig(name=f"{lm.kind}-0.5b", family=lm.kind, lm=lm)
    tokenizer = read_tokenizer(folder, SPECIAL_TOKENS_OF[lm.kind])
    return Parts(config, {"lm": ours}, tokenizer=tokenizer)


def hugging_face_sizes(folder: Path) -> tuple[LMConfig, int]:
    """The LM of a Hugging Face folder and the rows of its table; the tokenizer tells where speech
    begins."""
    source, ids = _added_ids(folder)
    names = ("<|s_0|>", "<|eos1|>", "<|sos|>", "<|task_id|>")
    if missing := [name for name in names if name not in ids]:
        raise CheckpointError(
            f"{source}: no {missing[0]} in it: a Hugging Face model, but no speech LM"
        )
    first, end, sos, task = (ids[name] for name in names)
    text_vocab = check_int(first, f"{source}: the id of <|s_0|>")
    kind: LMKind = "cosyvoice3" if sos < end else "cosyvoice2"
    speech_tokens = check_int(min(sos, end) - first, f"{source}: the number of speech tokens")
    table = qwen(folder / "config.json", speech_tokens, kind)
    rows, lm = table.text_vocab, replace(table, text_vocab=text_vocab)
    if (sos, task) != (lm.sos, lm.task) or rows < lm.vocab:
        raise CheckpointError(
            f"{source}: <|sos|> and <|task_id|> are {short_repr(sos)} and {short_repr(task)}, "
            f"expected {lm.sos} and {lm.task} of {rows} rows"
        )
    return lm, rows


def read_tokenizer(folder: Path, special_tokens: Sequence[str] = SPECIAL_TOKENS) -> TextTokenizer:
    """The text tokenizer of a Qwen2 folder."""
    vocab, merges, both = (folder / n for n in ("vocab.json", "merges.txt", "tokenizer.json"))
    if both.exists() and not vocab.exists():
        require_file(both)
        return TextTokenizer.from_json(both)
    require_file(vocab)
    require_file(merges)
    return TextTokenizer.from_vocabulary(vocab, merges, special_tokens)


def _added_ids(folder: Path) -> tuple[Path, dict[str, int]]:
    """The ids of tokens that were added to the text vocabulary, and the file that has them."""
    if (file := folder / "added_tokens.json").exists():
        added: list[tuple[Any, Any]] = list(read_json(file).items())
    elif (file := folder / "tokenizer.json").exists():
        tokens = read_json(file).get("added_tokens")
        entries = [t for t in tokens if isinstance(t, dict)] if isinstance(tokens, list) else []
        added = [(token.get("content"), token.get("id")) for token in entries]
    else:
        raise CheckpointError(f"{folder}: neither added_tokens.json nor tokenizer.json is there")
    return file, {k: v for k, v in added if isinstance(k, str) and type(v) is int}


def _first(folder: Path, *names: str) -> Path | None:
    return next((folder / name for name in names if (folder / name).exists()), None)


def _fingerprint(files: list[Path]) -> str:
    """Names the weights that make voices: a voice made by others does not fit."""
    if not files:
        return ""
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:16]
