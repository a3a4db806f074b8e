"""The faults of the original front end that are fixed here, each under a name.

With every fix switched off the front end gives what the original gives, which is how it is
verified. A fix is a few lines in the stage that it belongs to.
"""

from __future__ import annotations

from enum import Enum


class Fix(Enum):
    """A fault of the original. The value says what is done instead; stages are in their order."""

    NOTHING_TO_SAY = "text without a letter or digit is silent; the original failed on blanks"
    OTHER_LANGUAGES = "only Chinese and English are normalized; the original mangled all others"
    SOUNDS = "the digit of [EH1], which marks a stress, is not the word 'one'"
    ADDRESSES = "'help@example.com' is read with its at and its dots"
    SYMBOLS = "'&', 'w/', '½' and '10–12' are words in English, and nobody says an emoji"
    PLAIN_AMOUNTS = "'￥39.80元' names its unit once too often and '100,000' is one number"
    RANGES = "'10-20%' is not the second of October, and '第3-5章' no subtraction"
    HYPHENS = "the hyphen of 'GPT-4' or 'Wi-Fi' is no minus"
    NUMBERS_ONLY = "the number grammar sees numbers only; it takes 'Don't' and '3-5 days' apart"
    ENGLISH_NOTATIONS = (
        "the English grammar fails on '1,250', '100 m', 'No. 5', '24/7', 'the 1990s'"
    )
    AS_SAID = (
        "'June 30th, 2027' is not 'the thirtieth of june', '$3.50' not 'three point five dollars', "
        "and a phone number is read digit by digit"
    )
    BLANKS_AT_MARKS = "the English grammar leaves blanks before marks and at the end"
    ODD_DIGITS = "a superscript or circled digit is not the word 'zero'"
    NAMELESS_NUMBERS = "37 digits and more are read one by one; the original failed"
    LINE_BREAKS = "words on two lines, or two blanks apart, stay two words in Chinese text"
    SENTENCE_DOTS = "in Chinese text a dot in '39.80' or 'www.a.com' does not end a sentence"
    DOTS_IN_WORDS = "a dot in '3.14', 'a.com' or 'Dr.' does not end a sentence"
    MARK_RUNS = "'?!' and '...' end one sentence, whole; the original kept their first mark only"
    LONG_PIECES = "a sentence too long for one utterance is cut at a comma, a space or anywhere"


Fixes = frozenset[Fix]
ALL_FIXES: Fixes = frozenset(Fix)
