"""Text to the ids of a CosyVoice language model and back: Qwen2's byte-level BPE.

Reads `tokenizer.json`, or `vocab.json` with `merges.txt`. A small model may read phonemes: then a
pronouncer stands in front.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from cosyserve.errors import CheckpointError, InputError
from cosyserve.text.pronouncer import PAUSES, Pronouncer
from cosyserve.text.pronunciation.phonemes import ARPABET, alphabets_of
from cosyserve.text.tokens.byte_level import BYTE_NAMES, merge_borders, to_bytes
from cosyserve.text.tokens.special import COSYVOICE3_TOKENS, SPECIAL_TOKENS

_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_WITH_BLANKS = re.compile(r"\s*\S+|\s+")
KEPT_LENGTHS = 5_000  # more words than most texts have
_LARGEST_FILE = 64 << 20


class TextTokenizer:
    """Encodes text; the special tokens are recognised anywhere in it."""

    def __init__(
        self,
        bpe: Tokenizer,
        source: str,
        pronouncer: Pronouncer | None = None,
        special_tokens: Sequence[str] = SPECIAL_TOKENS,
    ) -> None:
        """`source` names the file in errors; `special_tokens` follow the vocabulary."""
        self._bpe = bpe
        self.pronouncer = pronouncer
        self._lengths: dict[str, int] = {}  # of words with the blanks before them
        self.special_tokens = tuple(special_tokens)
        vocabulary = bpe.get_vocab_size(with_added_tokens=False)
        bpe.add_special_tokens(list(special_tokens))
        for expected, token in enumerate(special_tokens, start=vocabulary):
            if (actual := bpe.token_to_id(token)) != expected:
                raise CheckpointError(
                    f"{source}: {token} has id {actual} instead of {expected}, the vocabulary has "
                    f"{vocabulary} entries: take the tokenizer files of the same model"
                )

    @classmethod
    def from_json(cls, path: Path, pronouncer: Pronouncer | None = None) -> TextTokenizer:
        """From a `tokenizer.json`, whose entries are phonemes if there is a pronouncer."""
        text = _read(path)
        try:
            bpe = Tokenizer.from_str(text)
        except Exception as error:  # the library raises nothing narrower
            raise CheckpointError(f"{path}: not a tokenizer.json: {error}") from error
        if not isinstance(bpe.model, models.BPE):
            raise CheckpointError(f"{path}: the model must be BPE, not {type(bpe.model).__name__}")
        of_cosyvoice3 = bpe.token_to_id(COSYVOICE3_TOKENS[-1]) is not None
        tokens = COSYVOICE3_TOKENS if of_cosyvoice3 else SPECIAL_TOKENS
        return cls(bpe, str(path), pronouncer, tokens)

    @classmethod
    def from_vocabulary(
        cls, vocab: Path, merges: Path, special_tokens: Sequence[str] = SPECIAL_TOKENS
    ) -> TextTokenizer:
        """From `vocab.json` and `merges.txt`, which don't name special tokens."""
        try:
            ids = json.loads(_read(vocab))
        except (json.JSONDecodeError, RecursionError) as error:
            raise CheckpointError(f"{vocab}: not JSON: {error}") from error
        if not isinstance(ids, dict) or any(type(value) is not int for value in ids.values()):
            raise CheckpointError(f"{vocab}: must map tokens to integer ids")
        if sorted(ids.values()) != list(range(len(ids))):
            raise CheckpointError(f"{vocab}: ids must be 0..{len(ids) - 1}, each once")
        if missing := [name for name in BYTE_NAMES if name not in ids]:
            raise CheckpointError(f"{vocab}: lacks {len(missing)} of the 256 byte tokens")
        pairs = []
        for line in _read(merges).split("\n"):
            if line and not line.startswith("#version"):
                left, blank, right = line.rstrip("\r").partition(" ")
                if not blank or " " in right:
                    raise CheckpointError(f"{merges}: {line[:40]!r} must hold two tokens")
                pairs.append((left, right))
        try:
            model = models.BPE(ids, pairs)
        except Exception as error:  # the library raises nothing narrower
            raise CheckpointError(f"{merges}: does not fit {vocab.name}: {error}") from error
        return cls(_qwen2(model), str(vocab), special_tokens=special_tokens)

    @cached_property
    def alphabets(self) -> frozenset[str]:
        """Those of the sounds that may stand in a text, as `[HH][AH0]`."""
        if self.pronouncer is not None:
            return frozenset({ARPABET})
        return frozenset(alphabets_of("".join(self.special_tokens)))

    def encode(self, text: str) -> list[int]:
        if self.pronouncer is not None:
            text = self.pronouncer(text)
        try:
            ids: list[int] = self._bpe.encode(text, add_special_tokens=False).ids
        except TypeError:  # what the library makes of a str that UTF-8 can't hold
            check_unicode(text)
            raise
        return ids

    def speaks(self, ids: Sequence[int]) -> bool:
        """Whether there is a sound among the ids, for a model that reads sounds."""
        if self.pronouncer is None:
            return True
        return bool(self.decode(ids, skip_special=False).strip(f"{PAUSES} "))

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        text: str = self._bpe.decode(ids, skip_special_tokens=skip_special)
        return text

    def length(self, text: str) -> int:
        """How many tokens the text has."""
        if self.pronouncer is None:
            return len(self.encode(text))
        # It reads words: the same ones many times, until a text is cut where it should be.
        words, known = _WITH_BLANKS.findall(text), self._lengths
        if new := set(words).difference(known):
            self.pronouncer(" ".join(new))  # many at once in the time of one
            known |= {word: len(self.encode(word)) for word in new}
            if len(known) > KEPT_LENGTHS:
                self._lengths = {}
        return sum(map(known.__getitem__, words))

    def save(self, path: Path) -> None:
        """Writes a `tokenizer.json`."""
        self._bpe.save(str(path))

    @cached_property
    def special_pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, self.special_tokens)))

    @cached_property
    def special_starts(self) -> frozenset[str]:
        """What may become a special token when more text arrives."""
        return frozenset(token[:n] for token in self.special_tokens for n in range(1, len(token)))

    @property
    def vocab_size(self) -> int:
        """Number of ids, special tokens included."""
        size: int = self._bpe.get_vocab_size(with_added_tokens=True)
        return size

    @cached_property
    def merge_borders(self) -> frozenset[tuple[bytes, bytes]]:
        """Neighbouring (partial) characters that some merge may join into one token."""
        merges = json.loads(self._bpe.to_str())["model"]["merges"]
        return merge_borders(to_bytes(left) + to_bytes(right) for left, right in merges)


def check_unicode(text: str) -> None:
    """Refuses what UTF-8 can't hold."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError("text holds half a surrogate pair: send valid Unicode") from error


def byte_tokenizer(special_tokens: Sequence[str] = SPECIAL_TOKENS) -> TextTokenizer:
    """Every byte is a token: the tokenizer of small test models."""
    vocabulary = {name: byte for byte, name in enumerate(BYTE_NAMES)}
    bpe = _qwen2(models.BPE(vocabulary, []))
    return TextTokenizer(bpe, "byte tokenizer", special_tokens=special_tokens)


def _qwen2(model: models.BPE) -> Tokenizer:
    bpe = Tokenizer(model)
    bpe.normalizer = normalizers.NFC()
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    return bpe


def _read(path: Path) -> str:
    try:
        if (size := path.stat().st_size) > _LARGEST_FILE:
            raise CheckpointError(f"{path}: {size} bytes is too large for a tokenizer file")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: can't be read: {error}") from error
