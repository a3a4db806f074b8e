"""Which rules of reading and punctuation a text needs.

Tells scripts apart, not languages: German without an umlaut looks like English.
Knows no grammar.
"""

from __future__ import annotations

import re
from enum import StrEnum

from cosyserve.text.fixes import ALL_MENDS, Mend, Mends

_HAN = re.compile(r"[\u4e00-\u9fff]")
_KANA = re.compile(r"[\u3041-\u30fa\u31f0-\u31ff\uff66-\uff9f]")
_HANGUL = re.compile(r"[\u1100-\u11ff\u3130-\u318f\uac00-\ud7af]")
_BORROWED = 0.1  # Chinese text borrows a kana (の) now and then; Japanese is full of them


class Language(StrEnum):
    CHINESE = "zh"
    ENGLISH = "en"
    JAPANESE = "ja"
    OTHER = "other"

    @property
    def wide(self) -> bool:
        """Written with full-width marks and without blanks between words."""
        return self in (Language.CHINESE, Language.JAPANESE)


def named(code: str) -> Language:
    """What a language code such as `en-GB` asks for."""
    first = code.lower().partition("-")[0]
    spoken = {"zh": Language.CHINESE, "cmn": Language.CHINESE, "yue": Language.CHINESE}
    spoken |= {"en": Language.ENGLISH, "ja": Language.JAPANESE}
    return spoken.get(first, Language.OTHER)


def detect(text: str, mends: Mends = ALL_MENDS) -> Language:
    han = len(_HAN.findall(text))
    if Mend.OTHER_LANGUAGES not in mends:
        return Language.CHINESE if han else Language.ENGLISH
    if len(_HANGUL.findall(text)) > _BORROWED * han:
        return Language.OTHER
    if len(_KANA.findall(text)) > _BORROWED * han:
        return Language.JAPANESE
    if han:
        return Language.CHINESE
    foreign = any(c.isalpha() and not c.isascii() for c in text)
    return Language.OTHER if foreign else Language.ENGLISH
