"""Speech tokens to turn into audio, and where they come from: a file, or a dataset."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cosyserve.audio import decode
from cosyserve.bench.items import HubDataset, Manifest
from cosyserve.contracts import Recording
from cosyserve.errors import AudioError, InputError

TOKENS, PROMPT_TOKENS = "target_audio_cosy2_tokens", "prompt_audio_cosy2_tokens"
COLUMNS = {"id", "prompt_text", "prompt_audio", TOKENS, PROMPT_TOKENS}


@dataclass(frozen=True)
class TokenItem:
    """Speech tokens, and the recording whose voice they are spoken in."""

    id: str
    tokens: tuple[int, ...]
    recording: Recording | None = None
    prompt_tokens: tuple[int, ...] = ()  # of the recording; none: they are found out


@dataclass(frozen=True)
class TokenFile:
    """`.npy` with the tokens of one utterance, `.jsonl` with an object a line, or a manifest whose
    last field is tokens. Recordings are named relative to the file's folder."""

    path: Path

    def items(self) -> list[TokenItem]:
        readers = {".npy": self._array, ".jsonl": self._objects}
        items = list(readers.get(self.path.suffix, self._manifest)())
        if not items:
            raise InputError(f"{self.path} has no tokens")
        return items

    def _array(self) -> Iterator[TokenItem]:
        try:
            tokens = np.load(self.path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise InputError(f"{self.path} can't be read: {error}") from error
        yield TokenItem(self.path.stem, _tokens(tokens.tolist(), str(self.path)))

    def _objects(self) -> Iterator[TokenItem]:
        try:
            lines = self.path.read_text("utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{self.path} can't be read: {error}") from error
        for number, line in enumerate(lines, start=1):
            where = f"{self.path}, line {number}"
            try:
                row = json.loads(line) if line.strip() else None
            except ValueError as error:
                raise InputError(f"{where} is no JSON: {error}") from error
            if row is not None:
                yield self._object(row, where)

    def _object(self, row: Any, where: str) -> TokenItem:
        if not isinstance(row, dict) or not row.get("id") or TOKENS not in row:
            raise InputError(f'{where}: write {{"id": …, "{TOKENS}": […]}}')
        audio, recording = row.get("prompt_audio"), None
        if audio:
            recording = self._recording(str(audio), str(row.get("prompt_text", "")), where)
        elif row.get(PROMPT_TOKENS):
            raise InputError(f"{where}: {PROMPT_TOKENS} needs prompt_audio, the recording's path")
        return _item(row, recording, where)

    def _recording(self, name: str, text: str, where: str) -> Recording:
        try:
            audio = decode(self.path.parent / name)
        except (AudioError, OSError) as error:
            raise InputError(f"{where}: prompt_audio {name}: {error}") from error
        return Recording(audio.samples, audio.rate, text)

    def _manifest(self) -> Iterator[TokenItem]:
        for item in Manifest(self.path).items(None):
            words = item.text.replace(",", " ").split()
            where = f"{self.path}, {item.id}"
            if not all(word.isdecimal() for word in words):
                raise InputError(f"{where}: the last field must be tokens, e.g. 17 4 2000")
            tokens = _tokens([int(word) for word in words], where)
            yield TokenItem(item.id, tokens, item.recording())


@dataclass(frozen=True)
class TokenDataset:
    """A split of a dataset of Hugging Face that has tokens, as `yuekai/seed_tts_cosy2`."""

    name: str
    split: str

    def items(self) -> list[TokenItem]:
        items = []
        for row in HubDataset(self.name, self.split).rows(COLUMNS):
            audio = row["prompt_audio"]
            samples, rate = np.asarray(audio["array"], np.float32), int(audio["sampling_rate"])
            recording = Recording(samples, rate, str(row["prompt_text"]))
            items.append(_item(row, recording, f"{self.name}, {row['id']}"))
        return items


def _item(row: dict[str, Any], recording: Recording | None, where: str) -> TokenItem:
    prompt = row.get(PROMPT_TOKENS)
    return TokenItem(
        str(row["id"]),
        _tokens(row[TOKENS], f"{where}: {TOKENS}"),
        recording,
        _tokens(prompt, f"{where}: {PROMPT_TOKENS}") if prompt else (),
    )


def _tokens(values: Any, where: str) -> tuple[int, ...]:
    numbers = isinstance(values, Sequence) and all(type(v) is int and v >= 0 for v in values)
    if not numbers or not values:
        raise InputError(f"{where}: tokens must be a list of whole numbers, at least one")
    return tuple(values)
