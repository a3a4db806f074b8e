"""How byte-level BPE writes bytes as visible characters in its vocabulary files.

A byte that is a visible Latin-1 character stands for itself, the others follow from U+0100 on.
"""

from __future__ import annotations

from collections.abc import Iterable

_VISIBLE = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
_HIDDEN = [byte for byte in range(256) if byte not in _VISIBLE]

BYTE_NAMES = [chr(b if b in _VISIBLE else 0x100 + _HIDDEN.index(b)) for b in range(256)]
_BYTES = {name: byte for byte, name in enumerate(BYTE_NAMES)}


def to_bytes(token: str) -> bytes:
    """The bytes that a vocabulary entry stands for."""
    return bytes(_BYTES[name] for name in token)


def merge_borders(tokens: Iterable[bytes]) -> frozenset[tuple[bytes, bytes]]:
    """The (partial) characters on both sides of every character border inside a token.

    Tokens of ASCII alone are left out: nearly every pair of their characters is joined somewhere.
    """
    pairs = set()
    for token in tokens:
        if token.isascii():
            continue
        borders = [i for i, byte in enumerate(token) if i and byte & 0xC0 != 0x80]
        edges = [0, *borders, len(token)]
        for start, border, end in zip(edges, edges[1:], edges[2:], strict=False):
            pairs.add((token[start:border], token[border:end]))
    return frozenset(pairs)
