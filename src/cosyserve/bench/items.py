"""What is to be spoken, and where it comes from: our sentences, one text, a manifest, a dataset."""

from __future__ import annotations

import base64
import importlib
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any, cast

import numpy as np

from cosyserve.audio import AudioFormat, decode, encode
from cosyserve.bench.sentences import ENGLISH, MANDARIN
from cosyserve.contracts import Recording
from cosyserve.errors import AudioError, InputError

MANIFEST_LINE = "id|prompt_text|prompt_wav|target_text"
DATASET_COLUMNS = {"id", "prompt_text", "prompt_audio", "target_text"}


@dataclass(frozen=True)
class Reference:
    """A recording whose voice is to speak."""

    audio: str  # the file, in base64
    text: str  # what is said in it

    @classmethod
    def of(cls, recording: Path, text: str) -> Reference:
        try:
            return cls(base64.b64encode(recording.read_bytes()).decode(), text)
        except OSError as error:
            raise InputError(f"{recording} can't be read: {error.strerror}") from error


@dataclass(frozen=True)
class Item:
    """A text to speak."""

    id: str
    text: str
    reference: Reference | None = None

    def recording(self) -> Recording | None:
        """The reference as sound."""
        if self.reference is None:
            return None
        try:
            audio = decode(base64.b64decode(self.reference.audio))
        except AudioError as error:
            raise InputError(f"the recording of {self.id}: {error}") from error
        return Recording(audio.samples, audio.rate, self.reference.text)


@dataclass(frozen=True)
class Sentences:
    """Our own sentences, short and long, one in five in Mandarin; or in one `language` alone."""

    language: str = ""

    def __post_init__(self) -> None:
        if self.language not in ("", "en", "zh"):
            raise InputError(f"there are sentences in en and zh, not in {self.language!r:.40}")

    def items(self, limit: int | None) -> list[Item]:
        english = [Item(f"en-{n:02}", text) for n, text in enumerate(ENGLISH, start=1)]
        mandarin = [Item(f"zh-{n:02}", text) for n, text in enumerate(MANDARIN, start=1)]
        if self.language:
            return (english if self.language == "en" else mandarin)[:limit]
        share = len(english) // len(mandarin)
        mixed: list[Item] = []
        for n, item in enumerate(mandarin):
            mixed += [*english[n * share : (n + 1) * share], item]
        return mixed[:limit]


@dataclass(frozen=True)
class Single:
    """One text, in the voice of a recording or in the server's own."""

    text: str
    recording: Path | None = None
    recording_text: str = ""

    def __post_init__(self) -> None:
        if self.recording_text and self.recording is None:
            raise InputError("--reference-text are the words of --reference-audio: give both")

    def items(self, limit: int | None) -> list[Item]:
        if self.recording is None:
            return [Item("test", self.text)]
        return [Item("test", self.text, Reference.of(self.recording, self.recording_text))]


@dataclass(frozen=True)
class Manifest:
    """A file with one item a line. Recordings are named relative to its folder."""

    path: Path

    def __str__(self) -> str:
        return f"the manifest {self.path}"

    def items(self, limit: int | None) -> list[Item]:
        try:
            lines = self.path.read_text("utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"the manifest {self.path} can't be read: {error}") from error
        numbered = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
        return [self._item(number, line) for number, line in islice(numbered, limit)]

    def _item(self, number: int, line: str) -> Item:
        where = f"{self.path}, line {number}"
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != MANIFEST_LINE.count("|") + 1:
            raise InputError(f"{where}: write {MANIFEST_LINE}; found {len(fields)} fields")
        name, prompt_text, prompt_wav, text = fields
        if not name or not text:
            raise InputError(f"{where}: id and target_text must not be empty")
        try:
            reference = Reference.of(self.path.parent / prompt_wav, prompt_text)
        except InputError as error:
            raise InputError(f"{where}: {error}") from error
        return Item(name, text, reference)


@dataclass(frozen=True)
class HubDataset:
    """A split of a dataset of Hugging Face, with the columns of a manifest."""

    name: str
    split: str

    def __str__(self) -> str:
        return f"the split {self.split!r} of the dataset {self.name!r}"

    def items(self, limit: int | None) -> list[Item]:
        return [_row_item(row) for row in islice(self.rows(DATASET_COLUMNS), limit)]

    def rows(self, columns: Set[str]) -> Iterable[dict[str, Any]]:
        """The rows, which have these columns."""
        try:
            datasets = importlib.import_module("datasets")
        except ImportError:
            raise InputError("reading a dataset needs a package: pip install datasets") from None
        try:
            rows: Any = datasets.load_dataset(self.name, split=self.split)
        except Exception as error:  # a hub, a network, a cache: each fails in its own types
            reason = str(error) or type(error).__name__
            raise InputError(
                f"the split {self.split!r} of the dataset {self.name!r} can't be read: {reason}"
            ) from error
        if missing := columns - set(rows.column_names):
            lacks = ", ".join(sorted(missing))
            raise InputError(f"the dataset {self.name!r} lacks the columns {lacks}")
        return cast(Iterable[dict[str, Any]], rows)


Source = Sentences | Single | Manifest | HubDataset


def read_items(source: Source, count: int | None = None) -> list[Item]:
    """Each item of a source once, or `count` items; a source without any is an error."""
    items = source.items(count)
    if not items:
        raise InputError(f"there is nothing to say in {source}")
    return repeated(items, count or len(items))


def _row_item(row: dict[str, Any]) -> Item:
    audio = row["prompt_audio"]
    samples, rate = np.asarray(audio["array"], np.float32), int(audio["sampling_rate"])
    data = encode(samples, AudioFormat.WAV, rate, rate)
    reference = Reference(base64.b64encode(data).decode(), str(row["prompt_text"]))
    return Item(str(row["id"]), str(row["target_text"]), reference)


def repeated(items: Sequence[Item], count: int) -> list[Item]:
    """`count` items, from the start again after the last; a name's n-th use is `name-n`."""
    uses: Counter[str] = Counter()
    named = []
    for item in islice(cycle(items), count):
        uses[item.id] += 1
        use = uses[item.id]
        named.append(item if use == 1 else replace(item, id=f"{item.id}-{use}"))
    return named
