"""Which rules of reading and punctuation a text needs.

Scripts are told apart, not languages: German without an umlaut looks like English.
"""

from __future__ import annotations

import re
from enum import StrEnum

from cosyserve.text.fixes import ALL_FIXES, Fix, Fixes

_HAN = re.compile(r"[\u4e00-\u9fff]")
_KANA = re.compile(r"[\u3041-\u30fa\u31f0-\u31ff\uff66-\uff9f]")
_HANGUL = re.compile(r"[\u1100-\u11ff\u3130-\u318f\uac00-\ud7af]")
_PINYIN = re.compile(r"\[[a-z\u00e0-\u01dc]{1,4}(?:\]|$)")  # a sound, which may still be arriving
_BORROWED = 0.1  # Chinese text borrows a kana (の) now and then; Japanese is full of them


class Language(StrEnum):
    CHINESE = "zh"
    ENGLISH = "en"
    JAPANESE = "ja"
    OTHER = "other"

    @property
    def wide(self) -> bool:
        """Whether it is written with full-width marks and without blanks between words."""
        return self in (Language.CHINESE, Language.JAPANESE)


def language_from_code(code: str) -> Language:
    """The language of a code such as `en-GB`."""
    first = code.lower().partition("-")[0]
    languages = {"zh": Language.CHINESE, "cmn": Language.CHINESE, "yue": Language.CHINESE}
    languages |= {"en": Language.ENGLISH, "ja": Language.JAPANESE}
    return languages.get(first, Language.OTHER)


def detect(text: str, fixes: Fixes = ALL_FIXES) -> Language:
    if text.isascii():
        return Language.ENGLISH
    han = len(_HAN.findall(text))
    if Fix.OTHER_LANGUAGES not in fixes:
        return Language.CHINESE if han else Language.ENGLISH
    if len(_HANGUL.findall(text)) > _BORROWED * han:
        return Language.OTHER
    if len(_KANA.findall(text)) > _BORROWED * han:
        return Language.JAPANESE
    if han:
        return Language.CHINESE
    foreign = any(c.isalpha() and not c.isascii() for c in _PINYIN.sub("", text))
    return Language.OTHER if foreign else Language.ENGLISH
