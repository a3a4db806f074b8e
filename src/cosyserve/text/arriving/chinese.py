"""Where a Chinese text that still arrives is settled: what stands before is read, whatever follows.

The reading of a number depends on its clause, and so a settled part is no text of its own: it is
read together with what stands before it in the clause.
"""

from __future__ import annotations

import re

CLAUSE_END = "，。！？；"
NUMBERS_ANEW = f"{CLAUSE_END}\n"  # a line is a clause of its own for the rules of numbers
LOOKAHEAD = 4  # characters behind a number that may belong to it, as in 3年之前到…

_NUMBER_NEAR = re.compile(rf"\d[^{CLAUSE_END}]{{0,{LOOKAHEAD - 1}}}$")
_HAN = re.compile(r"[\u4e00-\u9fff]+")
_DIGIT = re.compile(r"\d")
_WIDE = re.compile(r"[^\x00-\xff℃℉‐–～€￥Ωωμ\s]")
_JOINING = ".-—–"  # they are read with what follows
_COMMAS = "，,、"
_SILENT = "（）【】`"
# Read aloud in a clause with a number, and left alone in others.
_SIGN = re.compile(r"[+=×÷]|-(?![A-Za-z0-9])|(?<![A-Za-z0-9])-")
_NUMBER_OR_SIGN = re.compile(r"[\d+=×÷-]")
_CODE = re.compile(r"[A-Z]$|[$£€¥￥#+]$")  # USD, GPT: a number may follow


def last_settled(text: str, start: int, limit: int) -> int:
    """The last index behind `start`, up to `limit`, before which all is settled; `start`: no more
    is than was."""
    for end in range(limit, start, -1):
        near = _NUMBER_NEAR.search(text, max(0, end - LOOKAHEAD), end)
        if not near and _may_end(text, end) and not _waits_for_number(text, end):
            return end
    return start


def holds_number(text: str) -> bool:
    """Whether it has to be read by the rules of numbers."""
    return _NUMBER_OR_SIGN.search(text) is not None


def is_plain(text: str) -> bool:
    """Whether it holds nothing but characters that stand for themselves."""
    return _HAN.fullmatch(text) is not None


def _waits_for_number(text: str, end: int) -> bool:
    """Whether there is a sign in the clause, and no number yet."""
    start = max(text.rfind(mark, 0, end) for mark in NUMBERS_ANEW) + 1
    return bool(_SIGN.search(text, start, end)) and not _DIGIT.search(text, start, end)


def _may_end(text: str, end: int) -> bool:
    last, following = text[end - 1], text[end : end + 1]
    if last.isspace() or last in _JOINING or last in _SILENT:
        return False
    if last in _COMMAS:  # at the end of a text, a full stop
        return bool(following) and not (following.isspace() or following in _COMMAS + _SILENT)
    if _WIDE.match(last):
        return True
    if following.isspace():
        return not _CODE.search(text[:end])
    return bool(_WIDE.match(following))


def clause_end(text: str, start: int, end: int) -> int:
    """Where the first clause ends that ends between the two indices; 0: none does."""
    ends = (at + 1 for at in range(start, end) if text[at] in CLAUSE_END)
    return next((at for at in ends if _may_end(text, at)), 0)
