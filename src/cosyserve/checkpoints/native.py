"""Our model folder: config.json, a safetensors file per part, tokenizer.json, voices/.

Files are mapped into memory, so that a model loads in seconds and a
second process shares the pages. A folder is written beside its place and moved there when whole.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors.torch import save_file

from cosyserve.checkpoints.config_data import as_checkpoint_error, from_json, short_repr, to_json
from cosyserve.checkpoints.folder import written_whole
from cosyserve.checkpoints.parts import (
    MODULES,
    SPEAKERS,
    Parts,
    State,
    blank,
    check,
    check_finite,
    shapes,
    voice_files,
)
from cosyserve.checkpoints.plain_files import read_json, read_tensors, reason, require_file
from cosyserve.errors import CheckpointError
from cosyserve.models.config import ModelConfig
from cosyserve.models.int8 import unpacked
from cosyserve.text import Pronouncer, TextTokenizer

FORMAT, VERSION = "cosyserve", 1
MAX_CONFIG_BYTES = 64 << 10
MARK = re.compile(rb'"format"\s*:\s*"cosyserve"')
MAY_BE_ONNX = ("speech_tokenizer", "speaker_encoder")


def is_native(folder: Path) -> bool:
    """Whether the folder is ours, by a mark that even a damaged config has, so that the damage is
    named."""
    file = folder / "config.json"
    if not file.is_file():
        return False
    with file.open("rb") as stream:
        return MARK.search(stream.read(MAX_CONFIG_BYTES)) is not None


def read(folder: Path, only: Collection[str] = tuple(MODULES)) -> Parts:
    """Reads the folder's config and the weights of the parts in `only`."""
    config_file = folder / "config.json"
    config = _config(config_file)
    states, onnx = {}, {}
    for name, module in MODULES.items():
        if (sizes := getattr(config, name)) is None or name not in only:
            continue
        file = folder / f"{name}.safetensors"
        exported = file.with_suffix(".onnx")
        if name in MAY_BE_ONNX and exported.exists() and not file.exists():
            require_file(exported)
            onnx[name] = exported
            continue
        stored = read_tensors(file)
        states[name] = unpacked(str(file), stored)
        with as_checkpoint_error(str(config_file)):
            expected = shapes(blank(module, sizes))
        check(str(file), states[name], expected)
        check_finite(str(file), stored)  # eight bits are
    tokenizer = None
    if config.lm is not None:
        require_file(folder / "tokenizer.json")
        sounds = folder / "pronouncer.safetensors"
        pronouncer = Pronouncer.load(sounds) if sounds.exists() else None
        tokenizer = TextTokenizer.from_json(folder / "tokenizer.json", pronouncer)
    return Parts(
        config=config,
        states=states,
        onnx=onnx,
        tokenizer=tokenizer,
        voices=voice_files(folder),
    )


def _config(file: Path) -> ModelConfig:
    data = read_json(file, MAX_CONFIG_BYTES)
    if data.get("format") != FORMAT:
        raise CheckpointError(f"{file}: not the config of a cosyserve model folder")
    if data.get("version") != VERSION:
        raise CheckpointError(
            f"{file}: format version {short_repr(data.get('version'))}, this program reads "
            f"{VERSION}: run `cosyserve prepare` on the original folder again"
        )
    return from_json(data.get("model"), f"{file}: model")


def write(parts: Parts, folder: Path) -> None:
    """Writes all or nothing; an existing folder is never touched."""
    with model_written_whole(folder) as partial:
        _write(parts, partial)


@contextmanager
def model_written_whole(folder: Path) -> Iterator[Path]:
    """A folder to write a model into, in any form: `written_whole`, for everybody to read."""
    with written_whole(folder, CheckpointError) as partial:
        try:
            yield partial
        except CheckpointError:
            raise
        except Exception as error:  # libraries have their own names for a full disk
            raise CheckpointError(f"{folder}: can't be written: {reason(error)}") from error
        for file in partial.rglob("*"):  # some writers make files that only their owner can read
            file.chmod(0o755 if file.is_dir() else 0o644)


def save_state(state: State, file: Path) -> None:
    save_file(_unshared(state), file, metadata={"format": "pt"})


def _write(parts: Parts, folder: Path) -> None:
    for name, state in parts.states.items():
        save_state(state, folder / f"{name}.safetensors")
    for name, file in parts.onnx.items():
        shutil.copyfile(file, folder / f"{name}.onnx")
    if parts.tokenizer is not None:
        parts.tokenizer.save(folder / "tokenizer.json")
        if parts.tokenizer.pronouncer is not None:
            parts.tokenizer.pronouncer.save(folder / "pronouncer.safetensors")
    for voice in parts.voices:
        place = folder if voice.name == SPEAKERS else folder / "voices"
        place.mkdir(exist_ok=True)
        shutil.copyfile(voice, place / voice.name)
    config = {"format": FORMAT, "version": VERSION, "model": to_json(parts.config)}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", "utf-8")


def _unshared(state: State) -> State:
    """The state with a copy of each tensor that shares its memory, which the format can't hold."""
    own, seen = {}, set()
    for key, value in state.items():
        value = value.contiguous()
        memory = value.untyped_storage().data_ptr()
        own[key] = value.clone() if memory in seen else value
        seen.add(memory)
    return own
