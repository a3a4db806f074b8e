"""Token ids of a text that arrives piece by piece, read as the whole text would be."""

from __future__ import annotations

from cosyserve.text.arriving.gate import ReadinessGate
from cosyserve.text.tokens.piece_tokenizer import PieceTokenizer
from cosyserve.text.tokens.tokenizer import TextTokenizer


class ArrivingTokens:
    """The ids of one text: `push` its pieces, then `flush`."""

    def __init__(self, tokenizer: TextTokenizer, gate: ReadinessGate) -> None:
        self._pieces = PieceTokenizer(tokenizer)
        self._gate = gate

    def push(self, piece: str) -> list[int]:
        """The ids that are settled now. An empty piece says that the text has come to a halt: a
        number that waits for more of it is read as it stands."""
        if piece:
            return self._pieces.push(self._gate.push(piece))
        if not self._gate.holds_number:
            return []
        return self._pieces.push(self._gate.release()) + self._pieces.flush()

    def flush(self) -> list[int]:
        """The ids of what is left: the text has ended."""
        return self._pieces.push(self._gate.flush()) + self._pieces.flush()
