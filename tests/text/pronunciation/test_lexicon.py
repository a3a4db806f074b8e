import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.errors import InputError
from cosyserve.text import segments
from cosyserve.text.arriving.gate import ReadinessGate
from cosyserve.text.pronunciation.lexicon import MAX_ENTRIES, Lexicon
from cosyserve.text.split import speakable

BOTH = ("ARPAbet", "pinyin")
ENTRIES = {"nginx": "engine x", "New York": "the big apple", "重庆": "虫庆", "SQL": "sequel",
           "laps": "turns"}  # fmt: skip
ENGLISH = st.sampled_from(
    ["nginx", "Nginx,", "nginxes", "New York", "New", "York", "SQL", "sql", "MySQL", "5", "laps",
     "$3", "the", "No.", "cat.", "March", "3rd", "(SQL)", "1,250", "laps."]
)  # fmt: skip
CHINESE = st.sampled_from(
    ["重庆", "重", "庆", "有", "3", "个", "，", "。", " SQL ", "的人", "12.5", "元", "年", "USD"]
)
TEXT = st.one_of(
    st.lists(ENGLISH, max_size=7).map(" ".join),
    st.lists(CHINESE, max_size=9).map(lambda parts: "好" + "".join(parts)),
)


def spoken(text: str, entries: dict[str, str]) -> str:
    return "".join(segments(text, len, lexicon=Lexicon(entries)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("We run nginx, not Nginx-2.", "We run engine x, not engine x-two."),
        ("nginxes and MySQL stay", "nginxes and MySQL stay."),
        ("SQL is no sql", "sequel is no sql."),
        ("I ran 3 laps in New York.", "I ran three turns in the big apple."),
        ("我在重庆用 nginx 和SQL", "我在虫庆用engine x和sequel。"),
        ("重庆有3个人", "虫庆有三个人。"),
        ("<|en|>nginx", "<|en|>engine x"),
        ("[laughter] SQL", "[laughter] sequel."),
    ],
)
def test_words_are_said_as_asked(text: str, words: str) -> None:
    assert spoken(text, ENTRIES) == words


@given(TEXT)
def test_a_lexicon_changes_its_words_only(text: str) -> None:
    names = {word: f"x{chr(0xF800 + number)}" for number, word in enumerate(ENTRIES)}
    changed = spoken(text, names)
    for word, name in names.items():
        changed = changed.replace(name, word)
    assert changed.lower() == spoken(text, {}).lower()


@given(TEXT, st.integers(1, 5))
def test_words_may_arrive_in_pieces(text: str, length: int) -> None:
    gate = ReadinessGate(lexicon=Lexicon(ENTRIES))
    pieces = [text[at : at + length] for at in range(0, len(text), length)]
    expected = spoken(text, ENTRIES)
    assert "".join(map(gate.push, pieces)) + gate.flush() == expected or not expected


WORD = st.text("aAbB中文-", min_size=1, max_size=4).filter(speakable)


@given(st.lists(WORD, min_size=1, max_size=6), st.text("aAbB中文- ", max_size=12))
def test_the_longest_word_of_a_place_is_meant(words: list[str], text: str) -> None:
    def pattern(word: str) -> str:
        before = "(?<![a-zA-Z])" if word[0].isascii() and word[0].isalpha() else ""
        after = "(?![a-zA-Z])" if word[-1].isascii() and word[-1].isalpha() else ""
        return before + (f"(?i:{word})" if word == word.lower() else word) + after

    longest = sorted(set(words), key=len, reverse=True)
    found = re.compile("|".join(map(pattern, longest))).sub("x", text)
    assert Lexicon(dict.fromkeys(words, "x"))(text) == found


@pytest.mark.timeout(20)
def test_a_thousand_words_that_begin_alike_are_looked_up_quickly() -> None:
    words = {99 * "ς" + chr(0x4E00 + number): "a" for number in range(MAX_ENTRIES)}
    text = 40_000 * "Σ"
    assert Lexicon(words)(text) == text


def test_sounds_are_for_models_that_read_them() -> None:
    assert Lexicon({"tomato": "/təˈmɑːtəʊ/"}, BOTH)("A tomato.") == ("A [T][AH0][M][AA1][T][OW0].")
    assert Lexicon({"记": "[j][ǐ]"}, BOTH)("记者") == "[j][ǐ]者"
    with pytest.raises(InputError, match=r"'tomato' is given in ARPAbet.*reads no sounds"):
        Lexicon({"tomato": "/təˈmɑːtəʊ/"})
    with pytest.raises(InputError, match="pinyin, and this model reads ARPAbet only"):
        Lexicon({"记": "[j][ǐ]"}, ("ARPAbet",))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"": "x"}, "no word"),
        ({" a": "x"}, "no word"),
        ({"a" * 101: "x"}, "100 characters"),
        ({"a": "..."}, "'a' is said"),
        ({"a": "b" * 201}, "200 characters"),
        ({"a": "/qq/"}, "'q' in IPA"),
        ({"a": "[QQ]"}, r"no sound \[QQ\]"),
        ({f"a{n}": "b" for n in range(MAX_ENTRIES + 1)}, "1000 words"),
    ],
)
def test_what_is_no_entry_is_refused(entries: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Lexicon(entries, BOTH)


def test_a_text_may_hold_private_characters() -> None:
    assert Lexicon(ENTRIES)("\ue010 nginx \ue9ff") == " engine x "
