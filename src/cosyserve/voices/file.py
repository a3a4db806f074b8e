"""A voice as one safetensors file: arrays as tensors, everything else in its header."""

from __future__ import annotations

import json
import os
import stat
import struct
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from cosyserve.audio.formats import MAX_RATE, MIN_RATE
from cosyserve.contracts import Voice
from cosyserve.errors import StoreError, VoiceError

FORMAT, VERSION = "cosyserve-voice", "1"
MAX_BYTES = 64 << 20
MAX_HEADER_BYTES = 1 << 20
TEXTS = ("prompt_text", "name", "language", "family", "fingerprint", "consent", "created")
NUMBERS = ("flow_start", "source_rate")
ARRAYS = {"speech_tokens": np.int32, "mel": np.float32, "embedding": np.float32}
SOURCE = "source"


def to_bytes(voice: Voice) -> bytes:
    arrays = {
        name: np.ascontiguousarray(getattr(voice, name), kind) for name, kind in ARRAYS.items()
    }
    if voice.source is not None:
        arrays[SOURCE] = np.ascontiguousarray(voice.source, np.float32)
    header = {"format": FORMAT, "version": VERSION}
    header |= {name: getattr(voice, name) for name in TEXTS}
    header |= {name: str(getattr(voice, name)) for name in NUMBERS}
    try:
        return save(arrays, header | {"content_hash": voice.content_hash})
    except UnicodeEncodeError as error:
        raise VoiceError(f"voice {voice.name!r}: half a surrogate pair in its texts") from error


def from_bytes(data: bytes, origin: str) -> Voice:
    """`origin` names the file in errors."""
    if len(data) > MAX_BYTES:
        raise VoiceError(f"{origin}: larger than {MAX_BYTES >> 20} MiB: not a voice")
    header = _header(data, origin)
    if header.get("format") != FORMAT:
        raise VoiceError(f"{origin}: a safetensors file, but not a voice of cosyserve")
    if header.get("version") != VERSION:
        raise VoiceError(f"{origin}: voice format {header.get('version')!r}, expected {VERSION}")
    try:
        fields = _arrays(data) | {name: header.get(name, "") for name in TEXTS}
        fields |= {name: _number(header.get(name, "0")) for name in NUMBERS}
        voice = Voice(**fields)
        content_hash = voice.content_hash
    except (ValueError, VoiceError) as error:
        raise VoiceError(f"{origin}: {error}") from error
    if voice.source is not None and not MIN_RATE <= voice.source_rate <= MAX_RATE:
        raise VoiceError(f"{origin}: 'source_rate' must be {MIN_RATE}..{MAX_RATE}")
    if header.get("content_hash") != content_hash:
        raise VoiceError(f"{origin}: its content does not have the hash that it names: damaged")
    return voice


def _header(data: bytes, origin: str) -> dict[str, str]:
    """The metadata of a safetensors file: an 8-byte length, then JSON."""
    try:
        (length,) = struct.unpack_from("<Q", data)
        if length > MAX_HEADER_BYTES:
            raise ValueError
        meta = json.loads(data[8 : 8 + length])["__metadata__"]
    except (struct.error, ValueError, KeyError, TypeError, RecursionError) as error:
        raise VoiceError(f"{origin}: not a voice file, or cut off") from error
    if not isinstance(meta, dict) or not all(isinstance(v, str) for v in meta.values()):
        raise VoiceError(f"{origin}: not a voice file")
    return meta


def _arrays(data: bytes) -> dict[str, Any]:
    try:
        arrays = load(data)
    except Exception as error:  # the library and numpy raise many kinds on broken files
        raise VoiceError(f"not a whole voice file: {error}") from error
    kinds = ARRAYS | ({SOURCE: np.float32} if SOURCE in arrays else {})
    for name, kind in kinds.items():
        if name not in arrays:
            raise VoiceError(f"'{name}' is missing")
        if arrays[name].dtype != kind:
            raise VoiceError(f"'{name}' is {arrays[name].dtype}, expected {np.dtype(kind)}")
    if extra := sorted(arrays.keys() - kinds.keys()):
        raise VoiceError(f"unexpected array {extra[0]!r}")
    source = arrays.get(SOURCE, np.zeros(0))
    if source.ndim != 1 or not np.isfinite(source).all():
        raise VoiceError(f"'{SOURCE}' must be [n] finite samples")
    return arrays


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise ValueError(f"{text[:20]!r} is not a whole number")
    return int(text)


def save_voice(voice: Voice, file: Path) -> None:
    write_file(file, to_bytes(voice))


def load_voice(file: Path) -> Voice:
    try:
        data = read_file(file, MAX_BYTES + 1, str(file))
    except OSError as error:
        raise VoiceError(f"{file}: can't be read: {error.strerror}") from error
    return from_bytes(data, str(file))


def write_file(file: Path, data: bytes, *, replace: bool = True) -> bool:
    """Writes the file whole or not at all. False: it is there already, and stays as it is."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
            return _put(partial, file, replace)
        finally:
            Path(partial).unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{file}: can't be written: {error.strerror}") from error


def _put(partial: str, file: Path, replace: bool) -> bool:
    if replace:
        os.replace(partial, file)
        return True
    try:
        os.link(partial, file)  # unlike a rename, refuses what exists
    except FileExistsError:
        return False
    return True


def read_file(file: Path, max_bytes: int, origin: str) -> bytes:
    """The first bytes of a file, at most `max_bytes`. One that is not there is an OSError."""
    if not stat.S_ISREG(file.stat().st_mode):  # to open a pipe would wait
        raise VoiceError(f"{origin}: not a file")
    with file.open("rb") as stream:
        return stream.read(max_bytes)
