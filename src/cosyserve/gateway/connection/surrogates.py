"""Characters that were cut in two where a text was cut into pieces.

JavaScript cuts a text between the surrogates of a character, and writes each into its message as an
escape, which by itself is no Unicode: it is let through where pieces come, and nowhere else.
"""

from __future__ import annotations

import json
import re
from codecs import getincrementaldecoder
from collections.abc import Sequence
from typing import Any

from pydantic_core import from_json

ENCODING = "utf-16-le"

_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


class CharacterJoiner:
    """The pieces of a text in whole characters. The first half of one waits for the next piece; a
    half without its other one is left out."""

    def __init__(self) -> None:
        self._decoder = getincrementaldecoder(ENCODING)("ignore")

    def push(self, piece: str) -> str:
        return self._decoder.decode(piece.encode(ENCODING, "surrogatepass"))

    def reset(self) -> None:
        self._decoder.reset()


def read_json(data: str, text_path: Sequence[str]) -> Any:
    """What the JSON holds; a ValueError if it is none. Halves of characters may be in the text at
    the path, name by name ((): nowhere)."""
    try:
        return from_json(data)
    except ValueError:
        if not (text_path and _ESCAPED_SURROGATE.search(data)):
            raise
    from_json(_ESCAPED_SURROGATE.sub(r"\\ufffd", data))  # the other parser goes deeper than we do
    value = json.loads(data)
    if _SURROGATE.search(json.dumps(_without_text(value, text_path), ensure_ascii=False)):
        raise ValueError("half a surrogate pair outside of the text: send valid Unicode")
    return value


def _without_text(value: Any, path: Sequence[str]) -> Any:
    if not path:
        return None if isinstance(value, str) else value
    if not isinstance(value, dict):
        return value
    first, *rest = path
    return {n: _without_text(item, rest) if n == first else item for n, item in value.items()}
