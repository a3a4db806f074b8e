"""Reading published model folders: CosyVoice2, its Hugging Face LM, Step-Audio2's token2wav.

Nothing in a folder is executed: yaml is read as data, pickles as plain tensors.
Every problem is one CheckpointError that names the file and the key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
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
    voice_files,
)
from cosyserve.checkpoints.plain_files import read_json, read_state, read_tensors, require_file
from cosyserve.checkpoints.published import keys
from cosyserve.checkpoints.published.config import ConfigReader, dit, flow, qwen, unet, vocoder
from cosyserve.errors import CheckpointError
from cosyserve.models.config import DiTConfig, LMConfig, ModelConfig, UNetConfig
from cosyserve.models.encoders.prompt_encoders import TorchSpeakerEncoder, TorchSpeechTokenizer
from cosyserve.text import TextTokenizer

REFUSED = {
    "cosyvoice.yaml": "a first-generation CosyVoice (300M, 22.05 kHz): its speech LM, tokens and "
    "flow are other networks, which cosyserve does not have; use CosyVoice2-0.5B",
    "cosyvoice3.yaml": "a CosyVoice3 model, which cosyserve can't run yet; use CosyVoice2-0.5B",
}

# Of each part: names of its file, what reads its sizes, what loads it.
PROMPT_ENCODERS: dict[str, tuple[tuple[str, ...], Callable[[Path], Any], Callable[..., Any]]] = {
    "speech_tokenizer": (
        ("speech_tokenizer_v2.onnx", "speech_tokenizer_v2_25hz.onnx"),
        s3_sizes,
        load_speech_tokenizer,
    ),
    "speaker_encoder": (("campplus.onnx",), campplus_sizes, load_speaker_encoder),
}


def read(folder: Path, only: Collection[str] = tuple(MODULES)) -> Parts:
    """Any folder that we know, native ones included, with the weights of the parts in `only`."""
    try:
        if native.is_native(folder):
            return native.read(folder, only)
        return replace(_read(folder, only).only(only), voices=voice_files(folder))
    except OSError as error:
        raise CheckpointError(
            f"{error.filename or folder}: can't be read: {error.strerror}"
        ) from error


def _read(folder: Path, only: Collection[str]) -> Parts:
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: no such folder")
    if (folder / "cosyvoice2.yaml").exists():
        return _cosyvoice2(folder, with_lm="lm" in only)
    for name, why in REFUSED.items():
        if (folder / name).exists():
            raise CheckpointError(f"{folder / name}: {why}")
    if (folder / "flow.yaml").exists():
        return _step_audio2(folder)
    if (folder / "config.json").exists() and (folder / "model.safetensors").exists():
        return _hugging_face_lm(folder)
    names = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
    raise CheckpointError(
        f"{folder}: not a model folder. Expected cosyvoice2.yaml (CosyVoice2), flow.yaml "
        f"(Step-Audio2 token2wav), config.json with model.safetensors (the LM from Hugging Face) "
        f"or a folder written by `cosyserve prepare`; found {names}"
    )


def _cosyvoice2(folder: Path, *, with_lm: bool) -> Parts:
    reader = ConfigReader.of_yaml(folder / "cosyvoice2.yaml")
    text = folder / "CosyVoice-BlankEN"
    tokenizer = read_tokenizer(text)
    lm = qwen(text / "config.json", reader.size("llm.speech_token_size", 6561))
    if tokenizer.vocab_size > lm.text_vocab:
        raise CheckpointError(
            f"{text / 'config.json'}: vocab_size {lm.text_vocab} is smaller than the "
            f"{tokenizer.vocab_size} ids of vocab.json and the special tokens"
        )
    lm_states = {"lm": _lm_state(folder / "llm.pt", lm)} if with_lm else {}
    with as_checkpoint_error(str(reader.file)):
        estimator = unet(reader)
    parts = _token2wav(folder, reader, estimator)
    states = parts.states | lm_states
    with as_checkpoint_error(str(reader.file)):
        config = replace(parts.config, name="cosyvoice2-0.5b", lm=lm)
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
        estimator = dit(reader)
    return _token2wav(folder, reader, estimator)


def _token2wav(folder: Path, reader: ConfigReader, estimator: UNetConfig | DiTConfig) -> Parts:
    """Flow, vocoder, speech tokenizer and speaker encoder: the same files in both families."""
    with as_checkpoint_error(str(reader.file)):
        flow_sizes, vocoder_sizes = flow(reader, estimator), vocoder(reader)
        config = ModelConfig(flow=flow_sizes, vocoder=vocoder_sizes)
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
    states = {"flow": keys.flow_state(flow_sizes, flow_state), "vocoder": hift}
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
            config = replace(config, **{part: sizes})
            encoder = load(file, sizes)
        if isinstance(encoder, TorchSpeechTokenizer | TorchSpeakerEncoder):
            states[part] = encoder.module.state_dict()
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
    speech_bias = state["lm_head.bias"][keys.hf_speech_rows(lm)]  # the others are -inf
    check_finite(str(file), state | {"lm_head.bias": speech_bias})
    config = ModelConfig(name="cosyvoice2-0.5b", lm=lm)
    return Parts(config, {"lm": keys.hf_lm_state(lm, state)}, tokenizer=read_tokenizer(folder))


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
    speech_tokens = check_int(end - first, f"{source}: the number of speech tokens")
    table = qwen(folder / "config.json", speech_tokens)
    rows, lm = table.text_vocab, replace(table, text_vocab=text_vocab)
    if (sos, task) != (lm.sos, lm.task) or rows < lm.vocab:
        raise CheckpointError(
            f"{source}: <|sos|> and <|task_id|> are {short_repr(sos)} and {short_repr(task)}, "
            f"expected {lm.sos} and {lm.task} of {rows} rows"
        )
    return lm, rows


def read_tokenizer(folder: Path) -> TextTokenizer:
    """The text tokenizer of a Qwen2 folder."""
    vocab, merges, both = (folder / n for n in ("vocab.json", "merges.txt", "tokenizer.json"))
    if both.exists() and not vocab.exists():
        require_file(both)
        return TextTokenizer.from_json(both)
    require_file(vocab)
    require_file(merges)
    return TextTokenizer.from_vocabulary(vocab, merges)


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
