"""Text before the model: normalise, split, tokenise. Knows no audio, no voice, no request."""

from cosyserve.text.fixes import ALL_MENDS, Mend, Mends
from cosyserve.text.normalize import is_marked_up, spoken_text
from cosyserve.text.piece_tokenizer import PieceTokenizer
from cosyserve.text.pronouncer import Pronouncer
from cosyserve.text.segments import segments
from cosyserve.text.special import SPECIAL_TOKENS
from cosyserve.text.tokenizer import TextTokenizer, byte_tokenizer

__all__ = [
    "ALL_MENDS",
    "SPECIAL_TOKENS",
    "Mend",
    "Mends",
    "PieceTokenizer",
    "Pronouncer",
    "TextTokenizer",
    "byte_tokenizer",
    "is_marked_up",
    "segments",
    "spoken_text",
]
