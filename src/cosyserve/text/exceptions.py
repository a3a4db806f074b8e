"""Words that are not said as they are spelled, in a table that is looked up where it lies."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

MAX_BYTES = 8 << 20  # of a table, unpacked
_VOICELESS = "ptkfθ"
_HISSING = "szʃʒʧʤ"


class Exceptions:
    """How such words are said; their plurals and possessives follow."""

    def __init__(self, said: Mapping[str, str]) -> None:
        """`said`: words in small letters and their phonemes."""
        lines = sorted(f"{word} {phonemes}\n" for word, phonemes in said.items())
        self._lines = "".join(lines).encode()

    @classmethod
    def unpacked(cls, packed: bytes) -> Exceptions:
        """Of what `packed` gives. ValueError: it is something else."""
        table = cls({})
        try:
            unpacker = zlib.decompressobj()
            table._lines = unpacker.decompress(packed, MAX_BYTES)
            table._lines.decode()
        except (zlib.error, UnicodeDecodeError) as error:
            raise ValueError(f"the table of exceptions: {error}") from error
        if not unpacker.eof or (table._lines and not table._lines.endswith(b"\n")):
            raise ValueError("the table of exceptions is cut off or too long")
        return table

    def packed(self) -> bytes:
        return zlib.compress(self._lines, 9)

    def __len__(self) -> int:
        return self._lines.count(b"\n")

    def get(self, word: str) -> str | None:
        """The phonemes of a word in small letters; None where it is said as it is spelled."""
        if (said := self._line(word)) is not None:
            return said
        stem = word.removesuffix("s").removesuffix("'")
        if stem != word and not stem.endswith("s"):
            if said := self._line(stem):
                return said + ending(said)
            hissing = self._line(stem.removesuffix("e"))
            if hissing and hissing[-1] in _HISSING:
                return hissing + ending(hissing)
        return None

    def _line(self, word: str) -> str | None:
        """What stands behind the word, found by halving."""
        lines, key = self._lines, f"{word} ".encode()
        low, high = 0, len(lines)
        while low < high:
            start = lines.rfind(b"\n", low, (low + high) // 2) + 1 or low
            end = lines.find(b"\n", start) + 1
            line = lines[start:end]
            if line.startswith(key):
                return line[len(key) : -1].decode()
            if line < key:
                low = end
            else:
                high = start
        return None


def ending(said: str) -> str:
    """How the s of a plural or possessive sounds behind it."""
    if said[-1] in _HISSING:
        return "ᵻz"
    return "s" if said[-1] in _VOICELESS else "z"
