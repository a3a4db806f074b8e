import pytest

from cosyserve.errors import InputError
from cosyserve.text.pronunciation.phonemes import (
    alphabets_of,
    from_arpabet,
    from_ipa,
    from_pinyin,
)
from cosyserve.text.tokens.special import COSYVOICE3_TOKENS


@pytest.mark.parametrize(
    ("ipa", "sounds"),
    [
        ("həˈloʊ", "[HH][AH0][L][OW1]"),
        ("ˈwɜːld", "[W][ER1][L][D]"),
        ("ˌɪn.dʒɪˈnɪɹ", "[IH2][N][JH][IH0][N][IH1][R]"),
        ("ðə bɔɪ", "[DH][AH0] [B][OY1]"),
    ],
)
def test_ipa(ipa: str, sounds: str) -> None:
    assert from_ipa(ipa) == sounds


@pytest.mark.parametrize(
    ("syllables", "sounds"),
    [
        ("tian1 qi4", "[t][iān][q][ì]"),
        ("zhong4 qing4", "[zh][òng][q][ìng]"),
        ("lv4 nve4 er2", "[l][ǜ][n][vè][ér]"),
        ("gou3 liu2 gui4", "[g][ǒu][l][iú][g][uì]"),
        ("de5 ma0", "[d][e][m][a]"),
    ],
)
def test_pinyin(syllables: str, sounds: str) -> None:
    assert from_pinyin(syllables) == sounds
    assert alphabets_of(sounds) == {"pinyin"}


def test_arpabet() -> None:
    assert from_arpabet("hh ah0 l ow1") == "[HH][AH0][L][OW1]"
    assert alphabets_of("[HH][breath]") == {"ARPAbet"}


@pytest.mark.parametrize("syllable", ["tian", "xyz1", "tian6", "t1", "天1"])
def test_what_is_no_pinyin_is_refused(syllable: str) -> None:
    with pytest.raises(InputError, match="pinyin"):
        from_pinyin(syllable)


def test_pinyin_is_no_arpabet() -> None:
    with pytest.raises(InputError, match="ARPAbet"):
        from_arpabet("zhong4")
    assert "[zh]" in COSYVOICE3_TOKENS
