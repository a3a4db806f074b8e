"""Tokens of a text that arrives piece by piece, each as soon as it can no longer change.

The ids equal those of the whole text: the text is cut only where the tokenizer would never join
the two sides, whatever follows.
"""

from __future__ import annotations

import unicodedata

from cosyserve.text.tokens.tokenizer import TextTokenizer


class PieceTokenizer:
    """The tokens of one text: `push` its pieces, then `flush`."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._pending = ""

    def push(self, piece: str) -> list[int]:
        """The ids that are settled now."""
        self._pending += piece
        cut = self._last_cut()
        settled, self._pending = self._pending[:cut], self._pending[cut:]
        return self._tokenizer.encode(settled)

    def flush(self) -> list[int]:
        """The ids of what is left: the text has ended."""
        rest, self._pending = self._pending, ""
        return self._tokenizer.encode(rest)

    def _last_cut(self) -> int:
        """Where the pending text can be cut, as far behind as possible; 0: nowhere yet."""
        text = self._pending
        end = len(text) - self._unfinished_special(text)
        specials = list(self._tokenizer.special_pattern.finditer(text))
        for cut in range(end, 0, -1):
            while specials and specials[-1].start() >= cut:
                specials.pop()
            if specials and cut <= specials[-1].end():
                if cut == specials[-1].end():
                    return cut
                continue
            if cut < len(text) and self._is_border(text[cut - 1], text[cut]):
                return cut
        return 0

    def _is_border(self, left: str, right: str) -> bool:
        """Whether no token reaches over the border of two characters, whatever follows."""
        if self._tokenizer.pronouncer is not None:  # it reads words
            return right.isspace() and not left.isspace()
        kind, following = unicodedata.category(left)[0], unicodedata.category(right)[0]
        # Combining marks and Hangul vowels may be composed with what stands before them.
        if following in "MC" or "\u1100" <= right <= "\u11ff" or kind in "MZC":
            return False
        if following == "L" and kind != "N":
            return not self._may_merge(left, right)
        if kind in "LN":
            return following != kind
        return right == " " or following == "N"

    def _may_merge(self, left: str, right: str) -> bool:
        """Whether some merge of the tokenizer reaches over the border of two characters."""
        if left.isascii() and right.isascii():
            return True
        before = unicodedata.normalize("NFC", left)[-1].encode()
        after = unicodedata.normalize("NFC", right)[0].encode()
        return any(
            (before[-i:], after[:j]) in self._tokenizer.merge_borders
            for i in range(1, len(before) + 1)
            for j in range(1, len(after) + 1)
        )

    def _unfinished_special(self, text: str) -> int:
        """Length of the longest end of the text that could become a special token."""
        starts = self._tokenizer.special_starts
        for n in range(min(max(map(len, starts)), len(text)), 0, -1):
            if text[-n:] in starts:
                return n
        return 0
