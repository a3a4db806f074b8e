"""The special tokens of text vocabularies: CosyVoice2's, and CosyVoice3's with its sounds."""

from __future__ import annotations

import re

# In the order of their ids, which follow the vocabulary.
SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|endofprompt|>",
    "[breath]",
    "<strong>",
    "</strong>",
    "[noise]",
    "[laughter]",
    "[cough]",
    "[clucking]",
    "[accent]",
    "[quick_breath]",
    "<laughter>",
    "</laughter>",
    "[hissing]",
    "[sigh]",
    "[vocalized-noise]",
    "[lipsmack]",
    "[mn]",
)
_ENGLISH = (
    "AA AE AH AO AW AY B CH D DH EH ER EY F G HH IH IY JH K L M N NG OW OY P R S SH T TH UH UW V W "
    "Y Z ZH"
)
_VOWELS = frozenset("AEIOU")
# Initials, finals with a tone, and finals without one.
_CHINESE = (
    "a ai an ang ao b c ch d e ei en eng f g h i ian in ing iu ià iàn iàng iào iá ián iáng iáo iè "
    "ié iòng ióng iù iú iā iān iāng iāo iē iě iōng iū iǎ iǎn iǎng iǎo iǒng iǔ j k l m n o ong ou p "
    "q r s sh t u uang ue un uo uà uài uàn uàng uá uái uán uáng uè ué uì uí uò uó uā uāi uān uāng "
    "uē uě uī uō uǎ uǎi uǎn uǎng uǐ uǒ vè w x y z zh à ài àn àng ào á ái án áng áo è èi èn èng èr "
    "é éi én éng ér ì ìn ìng í ín íng ò òng òu ó óng óu ù ùn ú ún ā āi ān āng āo ē ēi ēn ēng ě ěi "
    "ěn ěng ěr ī īn īng ō ōng ōu ū ūn ǎ ǎi ǎn ǎng ǎo ǐ ǐn ǐng ǒ ǒng ǒu ǔ ǔn ǘ ǚ ǜ"
)
END_OF_PROMPT = "<|endofprompt|>"
COSYVOICE3_TOKENS = (
    *SPECIAL_TOKENS,
    "<|endofsystem|>",
    *(
        f"[{sound}{stress}]"
        for sound in _ENGLISH.split()
        for stress in (("", 0, 1, 2) if sound[0] in _VOWELS else ("",))
    ),
    *(f"[{sound}]" for sound in _CHINESE.split()),
)
_CONSONANTS = "|".join(sound for sound in _ENGLISH.split() if sound[0] not in _VOWELS)
_STRESSABLE = "|".join(sound for sound in _ENGLISH.split() if sound[0] in _VOWELS)
STRESSED = re.compile(rf"\[({_STRESSABLE})([012])\]")  # its digit is no number
ENGLISH_SOUNDS = re.compile(rf"\[(?:(?:{_STRESSABLE})[012]?|{_CONSONANTS})\]")
# Private characters that stand for words of a lexicon: those with blanks around them, and others.
HIDDEN_NARROW, HIDDEN_WIDE = "\ue010-\ue8ff", "\ue900-\uf0ff"
MARKS = "\uf100-\uf7ff"  # they tell such words apart that are written alike
SPECIAL = re.compile("|".join(map(re.escape, SPECIAL_TOKENS)))
