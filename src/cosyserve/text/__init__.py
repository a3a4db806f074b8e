"""Text before the model: normalize, split, tokenize."""

from cosyserve.text.arriving.tokens import ArrivingTokens
from cosyserve.text.fixes import ALL_FIXES, Fix, Fixes
from cosyserve.text.normalize import is_marked_up, spoken_text
from cosyserve.text.pronouncer import Pronouncer
from cosyserve.text.segments import segments
from cosyserve.text.tokens.special import COSYVOICE3_TOKENS, END_OF_PROMPT, SPECIAL_TOKENS
from cosyserve.text.tokens.tokenizer import TextTokenizer, byte_tokenizer

__all__ = [
    "ALL_FIXES",
    "COSYVOICE3_TOKENS",
    "END_OF_PROMPT",
    "SPECIAL_TOKENS",
    "ArrivingTokens",
    "Fix",
    "Fixes",
    "Pronouncer",
    "TextTokenizer",
    "byte_tokenizer",
    "is_marked_up",
    "segments",
    "spoken_text",
]
