import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyserve.text import segments
from cosyserve.text.language import Language


@pytest.mark.parametrize("text", ["", "   ", "。。。", "! ! !", "🎉", '"”', "\u200d"])
def test_nothing_to_say(text: str) -> None:
    assert list(segments(text, len)) == []


def test_marked_up_text_passes_untouched() -> None:
    text = "说3句<|endofprompt|>今天 39.80 元"
    assert list(segments(text, len)) == [text]
    assert list(segments("3个", len, normalize=False)) == ["3个"]


def test_normalises_and_splits() -> None:
    assert list(segments("我有3个苹果", len)) == ["我有三个苹果。"]
    assert list(segments("I have 3 apples", len)) == ["I have three apples."]


@settings(deadline=None, max_examples=60)
@given(
    st.text(st.one_of(st.sampled_from("你3. ,'\"[]<￥$%#\n😀の한é"), st.characters()), max_size=40)
)
def test_never_fails_and_leaves_no_silent_segment(text: str) -> None:
    assert all(part.strip() for part in segments(text, len))


@settings(deadline=None, max_examples=30)
@given(st.text("你好，。 ab", max_size=40))
def test_spoken_text_is_spoken_as_it_is(text: str) -> None:
    once = "".join(segments(text, len))
    assert "".join(segments(once, len)) == once


@pytest.mark.server
def test_importing_is_light() -> None:
    code = (
        "import sys, cosyserve.text; sys.exit(any(m in sys.modules for m in ('wetext', 'torch')))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(
    ("number", "mark"), [("1-2/3x4", ". "), ("1-2/3x4", ", "), ("3-2=1的3/4/5", "，")]
)
def test_numbers_are_read_when_their_segment_is_asked_for(number: str, mark: str) -> None:
    """Of those that only a grammar knows."""
    read: list[str] = []

    def reader(stretch: str, language: Language) -> str:
        read.append(stretch)
        return "many words " * 11 + "more"

    text = mark.join(f"{number}{at}" for at in range(100, 150))
    parts = segments(text, len, read=reader)
    next(parts)
    first = len(read)
    list(parts)
    assert 0 < first <= len(read) / 2
