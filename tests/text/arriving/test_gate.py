from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cosyserve.text import ArrivingTokens, TextTokenizer, segments
from cosyserve.text.arriving.gate import MAX_HELD, ReadinessGate

SPANS = [
    tuple(line.split("\t"))
    for line in Path(__file__).with_name("spans.tsv").read_text("utf-8").splitlines()
]
ENGLISH = st.sampled_from(
    ["the", "cat", "laps", "million", "m", "min", "March", "Mar.", "5", "12", "1,2", "$3", "No.",
     "3rd", "(415)", "555-1234", "2024", "1/2", "10-20%", "GPT-4", "km/h", "Dr.", "a.m.", "5,",
     "https://a.b/3", "it's", "May", "I", "￥", "(yes)", "\n", "  ", "0.5.", "kg", "°C", "…",
     "me@example.com", "a.com.", "+44", "20", "7946", "0958", "(0)", "code", "is", "94110", "ID:",
     "Main", "St.", "😀", "½", "R&D", "&", "w/", "10–12", "1h", "30m", "30th,", "June", "x²",
     "$5-$10", "**so**", "7/4/24", "@", "20€", "5-6", "pm", "#12345", "3.5M"]
)  # fmt: skip
CHINESE = st.sampled_from(
    ["我们", "今天", "的", "，", "。", "、", "3", "12.5", "个", "年", "之前", "月", "到", " ", "元",
     "￥", "第", "Python", "USD", "GPT-4", "-", "%", "2024-05-01", "3:30", "点", "km", "（", "）",
     "——", "...", "二", "百", "1,000", "Dr. Wu", "\n", "吗？", "a.com"]
)  # fmt: skip
TEXT = st.one_of(
    st.lists(ENGLISH, max_size=8).map(" ".join),
    st.lists(CHINESE, max_size=10).map(lambda parts: "好" + "".join(parts)),
)
CUTS = st.lists(st.integers(1, 6), min_size=1, max_size=5)


def cut(text: str, lengths: list[int]) -> list[str]:
    pieces, at = [], 0
    while at < len(text):
        pieces.append(text[at : at + lengths[len(pieces) % len(lengths)]])
        at += len(pieces[-1])
    return pieces


def spoken(pieces: list[str]) -> str:
    gate = ReadinessGate()
    return "".join(map(gate.push, pieces)) + gate.flush()


def whole(text: str) -> str:
    return "".join(segments(text, len))


@pytest.mark.parametrize(("text", "words"), SPANS)
def test_a_span_is_read_as_if_it_had_come_at_once(text: str, words: str) -> None:
    assert whole(text) == words
    for length in (1, 2, 3, 5, 8):
        assert spoken(cut(text, [length])) == words


@settings(deadline=None, max_examples=200)
@given(text=TEXT, lengths=CUTS)
@example("On Mar. 5, 2024 we ran 3 km", [1])
@example("好-的，3个", [1])
@example("好1,000\n-我们3", [1])
@example("好￥...元", [1])
@example("好1,000a.com/二=\nkm年2024-05-01", [1, 3, 3])
def test_what_is_spoken_does_not_depend_on_how_the_text_was_cut(
    text: str, lengths: list[int]
) -> None:
    expected = whole(text)
    assert spoken(cut(text, lengths)) == expected or not expected


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=TEXT, lengths=CUTS)
def test_the_ids_are_those_of_the_whole_text(
    small: TextTokenizer, text: str, lengths: list[int]
) -> None:
    tokens = ArrivingTokens(small, ReadinessGate())
    ids = [i for piece in cut(text, lengths) for i in tokens.push(piece)] + tokens.flush()
    assert ids == small.encode(whole(text)) or not whole(text)


@pytest.mark.parametrize("text", ["a plain sentence has no number", "这句话里没有数字可以读"])
def test_plain_words_are_never_held(text: str) -> None:
    gate = ReadinessGate()
    for at, character in enumerate(text):
        gate.push(character)
        word = text[: at + 1].rpartition(" ")[2] if text.isascii() else ""
        assert gate.held <= len(f" {word}") * text.isascii()


@pytest.mark.parametrize(
    ("pieces", "released"),
    [
        (["I ran 3", " l"], ["I ran", ""]),
        (["I ran 3", " la"], ["I ran", " three"]),
        (["It was 5", " March", " 2024", " t"], ["It was", "", "", ""]),
        (["It was 5", " March", " 2024", " th"],
         ["It was", "", "", " the fifth of march twenty twenty four"]),
        (["我有3", "个", "苹果", "，和"], ["我有", "", "", "三个苹果，和"]),
        (["我有3", "个苹果和"], ["我有", "三个苹果和"]),
    ],
)  # fmt: skip
def test_a_number_is_released_as_soon_as_it_can_not_change(
    pieces: list[str], released: list[str]
) -> None:
    gate = ReadinessGate()
    assert [gate.push(piece) for piece in pieces] == released


@pytest.mark.parametrize("text", ["https://a.b/" + "3" * 300, "好" + "3" * 300, "5 " * 300])
def test_no_more_is_held_than_a_bound(text: str) -> None:
    gate = ReadinessGate()
    for character in text:
        gate.push(character)
        assert gate.held <= MAX_HELD


def test_what_is_held_can_be_had() -> None:
    gate = ReadinessGate()
    assert gate.push("They won 3") == "They won"
    assert gate.release() == " three"
    assert gate.push(" times.") == ""
    assert gate.flush() == " times."


def test_a_halt_ends_a_number_and_no_word(small: TextTokenizer) -> None:
    tokens = ArrivingTokens(small, ReadinessGate())
    assert tokens.push("They won 3") == small.encode("They")
    assert tokens.push("") == small.encode(" won three")
    tokens.push(" tim")
    assert tokens.push("") == []
    assert tokens.push("es now ") == small.encode(" times")


def test_the_language_may_be_given() -> None:
    gate = ReadinessGate("de")
    assert gate.push("Es sind 3 von") + gate.flush() == "Es sind 3 von."


def test_marked_up_text_is_left_as_it_is() -> None:
    gate = ReadinessGate()
    pieces = "You have 3.<|endofprompt|>3 kg"
    assert "".join(map(gate.push, pieces)) + gate.flush() == pieces


def test_text_that_is_not_to_be_normalized_is_not(small: TextTokenizer) -> None:
    tokens = ArrivingTokens(small, ReadinessGate(normalize=False))
    assert tokens.push("I ran 3 km ") + tokens.push("") + tokens.flush() == small.encode(
        "I ran 3 km "
    )
