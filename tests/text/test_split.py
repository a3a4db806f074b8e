from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.text.fixes import ALL_FIXES, Fix
from cosyserve.text.split import (
    DEFAULT_LIMITS,
    SegmentLimits,
    count_letters,
    speakable,
    split,
)

TEXT = st.text(
    st.one_of(st.sampled_from("。？！，、.?!;:,\"”' 3.14aDr."), st.characters(codec="utf-8"))
)
SMALL = SegmentLimits(10, 5, 3)


def whole(text: str, wide: bool, **options: Any) -> list[str]:
    """The segments of a text that comes at once."""
    return list(split([text], wide=wide, length=len, **options))


def sentences(text: str, wide: bool) -> list[str]:
    fixes = ALL_FIXES - {Fix.LONG_PIECES}
    return whole(text, wide, limits=SegmentLimits(1, 0, 0), fixes=fixes)


@given(TEXT, st.booleans(), st.booleans())
def test_loses_nothing_and_adds_at_most_a_full_stop(text: str, wide: bool, commas: bool) -> None:
    joined = "".join(whole(text, wide=wide, limits=SMALL, at_commas=commas))
    assert joined in (text, text + ("。" if wide else ".")) or not text.strip()


@given(TEXT, st.booleans())
def test_segments_are_bounded(text: str, wide: bool) -> None:
    longest = 2 * SMALL.longest + SMALL.shortest + SMALL.merge
    assert all(len(s) <= longest for s in whole(text, wide=wide, limits=SMALL))


@pytest.mark.parametrize("text", ["他" * 5000, "好，" * 3000, "word " * 3000])
def test_a_text_without_an_end_is_cut(text: str) -> None:
    parts = whole(text, wide=True)
    assert max(map(len, parts)) <= 2 * DEFAULT_LIMITS.longest
    assert "".join(parts) == text + "。"


def test_cuts_long_pieces_at_commas_then_blanks() -> None:
    assert all(p.endswith(("，", "。")) for p in whole("好，" * 200, wide=True))
    words = whole("word " * 99 + "word", wide=False)
    assert all(part.split()[0].startswith("word") for part in words)


@pytest.mark.parametrize(
    "word", ["3.14", "15:30", "www.a.com", "http://a.com/b?c=d", "Dr. Who", "e.g. tea", "J. Doe"]
)
def test_does_not_cut_inside(word: str) -> None:
    assert sentences(f"aaa {word} bbb. Ccc", wide=False) == [f"aaa {word} bbb.", " Ccc."]


def test_a_run_of_marks_stays_with_its_sentence() -> None:
    assert sentences("真的吗？！！走。”好", wide=True) == ["真的吗？！！", "走。”", "好。"]


def test_packs_and_merges_the_last() -> None:
    parts = whole("短。" * 41, wide=True)
    assert parts == ["短。" * 41]
    assert [len(p) for p in whole("短。" * 50, wide=True)] == [80, 20]


def test_without_fixes_it_fails_as_the_original_did() -> None:
    for text in ("", "。”好"):
        with pytest.raises(IndexError):
            whole(text, wide=True, fixes=frozenset())


@given(TEXT, st.booleans(), st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_how_the_text_comes_makes_no_difference(text: str, wide: bool, sizes: list[int]) -> None:
    blocks, at = [], 0
    while at < len(text):
        blocks.append(text[at : at + sizes[len(blocks) % len(sizes)]])
        at += len(blocks[-1])
    for limits in (SMALL, SegmentLimits(1, 0, 0)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("cosyserve.text.split._SHORTEST_BLOCK", 1)
            found = list(split(blocks, wide=wide, length=len, limits=limits))
        assert found == whole(text, wide, limits=limits)


@pytest.mark.parametrize("mark", ["。", "，", ""])
def test_no_more_of_the_text_is_asked_for_than_a_segment_needs(mark: str) -> None:
    """With sentences, without an end to them, and without any mark."""
    blocks = iter(["好" * 9 + mark] * 200)
    segments = split(blocks, wide=True, length=len)
    next(segments)
    assert len(list(blocks)) > 140


def test_only_whole_words_are_measured() -> None:
    """A part of a word is a word that a pronouncer has never read."""
    text = "seventeen thousand, four hundred and twelve, " * 30
    asked: set[str] = set()

    def length(part: str) -> int:
        asked.update(part.replace(",", "").rstrip(".").split())
        return len(part)

    parts = list(split([text], wide=False, length=length))
    assert "".join(parts).startswith(text[:-1])
    assert asked == set(text.replace(",", "").split())


@pytest.mark.parametrize("mark", [", ", ". "])
def test_a_text_is_measured_a_few_times_for_a_segment(mark: str) -> None:
    asked: list[str] = []

    def length(part: str) -> int:
        asked.append(part)
        return len(part)

    parts = list(split([mark.join(["seventeen thousand"] * 200)], wide=False, length=length))
    assert sum(map(len, asked)) < 12 * sum(map(len, parts))


@given(TEXT)
def test_what_has_letters_can_be_spoken(text: str) -> None:
    assert speakable(text) == (count_letters(text) > 0)


def test_letters_are_of_any_script() -> None:
    assert count_letters("Ünï-3, 你好！ 아니요 … ½") == 3 + 1 + 2 + 3 + 1
