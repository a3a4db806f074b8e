"""E-mail and web addresses and names of files as they are said: 'help at example dot com'."""

from __future__ import annotations

import re

from cosyserve.text.number_rules.english import digit_by_digit, read_english

_MAIL = r"(?<![\w.+%-])[\w.+%-]+@(?:[\w-]+\.)+[A-Za-z]{2,}(?!\w)"
_LINK = r"(?<![\w@/])(?:https?://|www\.)[^\s<>\"“”]+"
# Endings that are no English words, which people also write behind a full stop.
_DOMAIN = (
    "ai|app|au|biz|blog|br|ca|ch|cloud|cn|co|com|de|dev|edu|es|eu|fm|fr|gg|gov|ie|info|int|io|jp"
    "|kr|mil|net|nl|nz|online|org|pl|ru|se|shop|site|store|tech|tv|uk|xyz"
)
_FILE = (
    "avi|csv|docx?|exe|gif|html?|jpe?g|js|json|md|mov|mp3|mp4|pdf|png|pptx?|py|rs|sh|svg|tar|toml|ts"
    "|txt|wav|xlsx?|xml|ya?ml|zip"
)
_BARE = (
    rf"(?<![\w.@/-])(?:[\w-]+\.)+(?:(?:{_DOMAIN})(?![\w@-]|\.\w)(?::\d{{2,5}})?(?:/[^\s<>\"“”]*)?"
    rf"|(?:{_FILE})(?![\w@-]|\.\w))"
)
_HOST = r"(?<![\w.@/-])localhost:\d{2,5}(?:/[^\s<>\"“”]*)?"
_ADDRESS = re.compile(f"{_MAIL}|{_LINK}|{_BARE}|{_HOST}")
_CLOSING = ".,;:!?'’)]}*"
_PART = re.compile(r"[A-Za-z]+|\d+|[^A-Za-z\d\s]")
_MARKS = {
    ".": "dot", "@": "at", "-": "dash", "_": "underscore", "+": "plus", "/": "slash",
    ":": "colon", "?": "question mark", "=": "equals", "&": "and", "#": "hash", "~": "tilde",
    "%": "percent",
}  # fmt: skip
_SAID_AS_WORD = {"co", "py"}
_UNSAYABLE = re.compile(r"[b-df-hj-np-tv-xz]{1,4}|[a-z]", re.IGNORECASE)


def say_addresses(text: str) -> str:
    """The text with its addresses in words."""
    return _ADDRESS.sub(_said, text) if "." in text or ":" in text else text


def _said(address: re.Match[str]) -> str:
    written = address[0].rstrip(_CLOSING)
    behind = address[0][len(written) :]
    parts = _PART.findall(re.sub("^https?://", "", written).rstrip("/"))
    before = ["", *parts[:-1]]
    words = [_part(part, after_dot=b == ".") for b, part in zip(before, parts, strict=True)]
    return " ".join(filter(None, words)) + behind


def _part(part: str, *, after_dot: bool) -> str:
    if part.isdecimal():
        return read_english(part) or digit_by_digit(part)
    if not part.isalpha():
        return _MARKS.get(part, "")
    if after_dot and len(part) == 2 and part not in _SAID_AS_WORD:
        return ".".join(part.upper())  # as a country: U.K
    return part.upper() if _UNSAYABLE.fullmatch(part) else part
