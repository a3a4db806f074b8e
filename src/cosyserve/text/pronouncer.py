"""English words to phonemes by a small convolutional net, for models that read sounds.

The net sees the letters of one word at a time; every letter may sound as up to three phonemes
(a stress mark is part of its vowel). Words that it reads wrong are in a table. It needs no torch.
"""

from __future__ import annotations

import math
import re
import threading
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from cosyserve.contracts import Floats
from cosyserve.errors import CheckpointError
from cosyserve.text.abbreviations import expand_abbreviations
from cosyserve.text.exceptions import Exceptions
from cosyserve.text.tokens.special import ENGLISH_SOUNDS, SPECIAL

LETTERS = "#abcdefghijklmnopqrstuvwxyz'"  # the first marks both ends of a word
SOUNDS_PER_LETTER = 3
PAUSES = ",.!?;:"
MAX_LETTERS = 64  # of a word; the rest is not read
CACHED_WORDS = 20_000
WORDS_AT_ONCE = 32  # through the net: few are as slow as one, more need more memory
SCALE = ".scale"
EXCEPTIONS = "exceptions"  # the table's tensor: bytes
_WORD = re.compile(
    rf"({SPECIAL.pattern})|((?:{ENGLISH_SOUNDS.pattern})+)|([A-Za-z]+(?:['-][A-Za-z]+)*)"
    rf"|([{re.escape(PAUSES)}]+)|(\s+)"
)
# fmt: off
ARPABET_SOUNDS = {
    "AA": "ɑ", "AE": "æ", "AH": "ʌ", "AO": "ɔ", "AW": "W", "AY": "I", "EH": "ɛ", "ER": "ɜɹ",
    "EY": "A", "IH": "ɪ", "IY": "i", "OW": "O", "OY": "Y", "UH": "ʊ", "UW": "u", "B": "b",
    "CH": "ʧ", "D": "d", "DH": "ð", "F": "f", "G": "ɡ", "HH": "h", "JH": "ʤ", "K": "k", "L": "l",
    "M": "m", "N": "n", "NG": "ŋ", "P": "p", "R": "ɹ", "S": "s", "SH": "ʃ", "T": "t", "TH": "θ",
    "V": "v", "W": "w", "Y": "j", "Z": "z", "ZH": "ʒ",
}
# fmt: on
_UNSTRESSED = {"AH0": "ə", "ER0": "əɹ"}
STRESS = {"1": "ˈ", "2": "ˌ"}


class Pronouncer:
    """`tensors` as the training recipe writes them; `sounds` are the classes, silence first.
    `notice` says where the exceptions are from."""

    def __init__(
        self,
        tensors: dict[str, Floats],
        sounds: list[str],
        exceptions: Exceptions | None = None,
        notice: str = "",
    ) -> None:
        self.tensors = tensors
        self.sounds = sounds
        self.exceptions = exceptions or Exceptions({})
        self.notice = notice
        self._blocks = sum(key.startswith("blocks.") for key in tensors) // 6
        self._known: dict[str, str] = {}  # phonemes of words, the next to be forgotten first
        self._knowing = threading.Lock()

    @classmethod
    def load(cls, file: Path) -> Pronouncer:
        try:
            with safe_open(file, "np") as stored:
                found = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
                metadata = stored.metadata() or {}
            table = found.pop(EXCEPTIONS, None)
            exceptions = None if table is None else Exceptions.unpacked(table.tobytes())
            sounds = ["", *metadata["sounds"].split(" ")]
            pronouncer = cls(_dequantized(found), sounds, exceptions, metadata.get("notice", ""))
            pronouncer("Check.")
        except (OSError, SafetensorError, KeyError, ValueError, IndexError) as error:
            raise CheckpointError(f"{file}: not the weights of a pronouncer: {error}") from error
        return pronouncer

    def save(self, file: Path) -> None:
        stored, metadata = _quantized(self.tensors), {"sounds": " ".join(self.sounds[1:])}
        if len(self.exceptions):
            stored[EXCEPTIONS] = np.frombuffer(self.exceptions.packed(), np.uint8)
            metadata["notice"] = self.notice
        save_file(stored, file, metadata)

    def __call__(self, text: str) -> str:
        """The text's phonemes, pauses and special tokens; what is no English is left out."""
        found = _WORD.findall(expand_abbreviations(text if text.isascii() else _plain(text)))
        words = {word: self._parts(word.lower()) for _, _, word, _, _ in found if word}
        read = self.read({part for parts in words.values() for part in parts})
        phonemes = ""
        for special, sounds, word, pauses, space in found:
            if word or sounds:
                gap = " " if phonemes and phonemes[-1] not in " >]" else ""
                said = " ".join(read[part] for part in words[word]) if word else _of_arpabet(sounds)
                phonemes += gap + said
            elif pauses:
                phonemes = phonemes.rstrip() + pauses[0]
            else:
                phonemes += special or (space and " ")
        return re.sub(r" +", " ", phonemes).rstrip()

    def _parts(self, word: str) -> list[str]:
        """Words with hyphens are read one by one, but for exceptions as wi-fi."""
        known = "-" in word and self.exceptions.get(word) is not None
        return [word] if known else word.split("-")

    def read(self, words: Iterable[str]) -> dict[str, str]:
        """The phonemes of each word; those of the last ones are kept."""
        with self._knowing:
            read = {word: self._known.pop(word, None) for word in words}
            self._known |= {word: said for word, said in read.items() if said is not None}
        unknown = sorted(word for word, said in read.items() if said is None)
        excepted = {word: self.exceptions.get(word) for word in unknown}
        new = {word: said for word, said in excepted.items() if said is not None}
        spelled = [word for word in unknown if word not in new]
        for start in range(0, len(spelled), WORDS_AT_ONCE):
            some = spelled[start : start + WORDS_AT_ONCE]
            new |= zip(some, self._phonemes(some), strict=True)
        with self._knowing:
            self._known |= new
            while len(self._known) > CACHED_WORDS:
                del self._known[next(iter(self._known))]
        return {word: new[word] if said is None else said for word, said in read.items()}

    def _phonemes(self, words: Sequence[str]) -> list[str]:
        letters = [
            [LETTERS.index(letter) for letter in f"#{word[:MAX_LETTERS]}#"] for word in words
        ]
        return [
            "".join(
                self.sounds[sound]
                for sound, before in zip(best, [0, *best[:-1]], strict=True)
                if sound and sound != before
            )
            for best in (logits.argmax(-1) for logits in self.logits(letters))
        ]

    def logits(self, words: Sequence[Sequence[int]]) -> list[Floats]:
        """Letters of each word -> [letters * SOUNDS_PER_LETTER, sounds] of each."""
        get, ends = self.tensors.__getitem__, np.cumsum([len(word) for word in words])
        letters = np.concatenate([np.array(word) for word in words])
        seen = self._seen(ends)
        x = get("letters.weight")[letters]
        places = np.arange(seen.shape[1])
        y = self._first_kernel[np.append(letters, len(LETTERS))[seen], places].sum(1)
        normal = np.zeros((len(x) + 1, x.shape[1]), np.float32)  # the last row is no letter's
        for i in range(self._blocks):
            name = f"blocks.{i}."
            if i:
                normal[:-1] = _layer_norm(x, get(name + "norm.weight"), get(name + "norm.bias"))
                y = normal.take(seen, 0).reshape(len(x), -1) @ self._kernels[i - 1]
            y += get(name + "conv.bias")
            x += _gelu(y) @ get(name + "out.weight").T + get(name + "out.bias")
        y = _layer_norm(x, get("norm.weight"), get("norm.bias"))
        logits: Floats = y @ get("head.weight").T + get("head.bias")
        return [
            found.reshape(len(found) * SOUNDS_PER_LETTER, -1)
            for found in np.split(logits, ends[:-1])
        ]

    def _seen(self, ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """For words that end at these rows, the rows that a kernel sees around each: [rows, width];
        beyond the word's ends, the row behind all of them."""
        width = self.tensors["blocks.0.conv.weight"].shape[2]
        starts = np.append(0, ends[:-1])
        seen = np.arange(ends[-1])[:, None] + np.arange(width) - width // 2
        first, end = (np.repeat(at, ends - starts)[:, None] for at in (starts, ends))
        return np.where((seen >= first) & (seen < end), seen, ends[-1])

    @cached_property
    def _first_kernel(self) -> Floats:
        """What the first block's makes of each letter, and of none, at each place of its width:
        [letters + 1, width, out]. So few need no matrix for each word."""
        get = self.tensors.__getitem__
        normal = _layer_norm(
            get("letters.weight"), get("blocks.0.norm.weight"), get("blocks.0.norm.bias")
        )
        made: Floats = np.tensordot(normal, get("blocks.0.conv.weight"), (1, 1)).swapaxes(1, 2)
        return np.append(made, np.zeros_like(made[:1]), 0)

    @cached_property
    def _kernels(self) -> list[Floats]:
        """Those of the other blocks, as matrices: [width * in, out]"""
        kernels = (self.tensors[f"blocks.{i}.conv.weight"] for i in range(1, self._blocks))
        return [kernel.transpose(2, 1, 0).reshape(-1, len(kernel)) for kernel in kernels]


def _of_arpabet(sounds: str) -> str:
    """[HH][AH0][L][OW1] -> həlˈO"""
    return "".join(
        _UNSTRESSED.get(name) or STRESS.get(name[-1], "") + ARPABET_SOUNDS[name.rstrip("012")]
        for name in sounds[1:-1].split("][")
    )


def _quantized(tensors: dict[str, Floats]) -> dict[str, npt.NDArray[Any]]:
    """Matrices and kernels in eight bits with a scale per row, the rest in half precision."""
    small: dict[str, npt.NDArray[Any]] = {}
    for key, value in tensors.items():
        if value.ndim < 2:
            small[key] = value.astype(np.float16)
            continue
        scale = np.abs(value).max(tuple(range(1, value.ndim)), keepdims=True) / 127 + 1e-12
        small[key] = np.round(value / scale).astype(np.int8)
        small[key + SCALE] = scale.astype(np.float32)
    return small


def _dequantized(stored: dict[str, npt.NDArray[Any]]) -> dict[str, Floats]:
    """As `_quantized` took them; what is not in eight bits, as it is."""
    tensors: dict[str, Floats] = {}
    for key, value in stored.items():
        if key.endswith(SCALE):
            continue
        tensors[key] = value.astype(np.float32)
        if value.dtype == np.int8:
            scale = stored.get(key + SCALE)
            if scale is None or scale.shape != value.shape[:1] + (1,) * (value.ndim - 1):
                raise ValueError(f"'{key}' is int8 without a scale per row")
            tensors[key] *= scale
    return tensors


def _plain(text: str) -> str:
    """Letters without their accents, and marks that are known."""
    plain = unicodedata.normalize("NFKD", text).replace("’", "'").replace("—", ",")
    return "".join(char for char in plain if not unicodedata.combining(char))


def _layer_norm(x: Floats, weight: Floats, bias: Floats) -> Floats:
    normal: Floats = x - x.mean(-1, keepdims=True)
    variance = np.einsum("rc,rc->r", normal, normal)[:, None] / x.shape[1]
    normal /= np.sqrt(variance + 1e-5)
    normal *= weight
    normal += bias
    return normal


def _gelu(x: Floats) -> Floats:
    y: Floats = 0.044715 * x * x
    y += 1
    y *= x
    y *= math.sqrt(2 / math.pi)
    np.tanh(y, out=y)
    y += 1
    y *= x
    y *= 0.5
    return y
