"""Sentences of a text in pieces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from cosyserve.text.sentences import SentenceBuffer, ends_sentence, sentences, sentences_async

CASES: list[tuple[str, Sequence[str]]] = [
    ("", []),
    ("... \n", []),
    ("No end", ["No end"]),
    ("Hi. This is one sentence. And two.", ["Hi. This is one sentence.", " And two."]),
    ("It cost 3.50 with Dr. Who in it. Yes.", ["It cost 3.50 with Dr. Who in it.", " Yes."]),
    (
        "They have moved to house No. 5 of that street. Yes.",
        ["They have moved to house No. 5 of that street.", " Yes."],
    ),
    ('He said "this will do, friend." Good.', ['He said "this will do, friend."', " Good."]),
    (
        "今天天气很好我们一起去公园散步吧你觉得呢。好的，那就走吧！",
        ["今天天气很好我们一起去公园散步吧你觉得呢。", "好的，那就走吧！"],
    ),
    (
        "a line that is long enough\nand another one",
        ["a line that is long enough\n", "and another one"],
    ),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
@pytest.mark.parametrize("step", [1, 7, 1000])
def test_sentences_do_not_depend_on_the_pieces(
    text: str, expected: Sequence[str], step: int
) -> None:
    async def pieces() -> AsyncIterator[str]:
        for place in range(0, len(text), step):
            yield text[place : place + step]

    async def collect() -> list[str]:
        return [sentence async for sentence in sentences_async(pieces())]

    collected = asyncio.run(collect())
    assert collected == expected
    cut = (text[place : place + step] for place in range(0, len(text), step))
    assert list(sentences(cut)) == expected
    assert "".join(collected) in ("", text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Well, it rains; still, we go. Yes", ["Well, it rains;", " still, we go.", " Yes"]),
        ("On May 5, 2026, it cost 1,000 dollars", ["On May 5, 2026,", " it cost 1,000 dollars"]),
        ("See https://a.example/b: it is there", ["See https://a.example/b:", " it is there"]),
        ("At 15:30, or later, they left", ["At 15:30, or later,", " they left"]),
        (
            "今天天气很好我们去公园，好的，那就走吧，明天再说。",
            ["今天天气很好我们去公园，", "好的，那就走吧，明天再说。"],
        ),
    ],
)
@pytest.mark.parametrize("step", [1, 7, 1000])
def test_clauses(text: str, expected: Sequence[str], step: int) -> None:
    buffer = SentenceBuffer("clause")
    pieces = (text[place : place + step] for place in range(0, len(text), step))
    whole = [clause for piece in pieces for clause in buffer.push(piece)]
    assert whole + list(buffer.flush()) == expected


@pytest.mark.parametrize(
    ("text", "following", "ends"),
    [
        ("He left.", "Then", True),
        ("Did he?", "Yes", True),
        ("He said “go!”", "Then", True),
        ("Well…", "no", True),
        ("走吧。", "好", True),
        ("他说“走！”", "好", True),
        ("He has 5.", "Then", True),
        ("He left", "Then", False),
        ("He left,", "then", False),
        ("He said:", "go", False),
        ("走吧，", "好", False),
        ("One. Two", "three", False),
        ("I met Dr.", "Who", False),
        ("House No.", "5", False),
    ],
)
def test_whether_a_sentence_ends_where_another_text_follows(
    text: str, following: str, ends: bool
) -> None:
    assert ends_sentence(text, following) is ends


def test_a_sentence_does_not_wait_for_the_next_to_end() -> None:
    closed = []

    async def pieces() -> AsyncIterator[str]:
        try:
            yield "This is a whole sentence. An"
            await asyncio.sleep(60)
        finally:
            closed.append(True)

    async def first() -> str:
        arriving = sentences_async(pieces())
        try:
            return await anext(arriving)
        finally:
            await arriving.aclose()

    assert asyncio.run(first()) == "This is a whole sentence."
    assert closed


@pytest.mark.timeout(20)
@pytest.mark.parametrize("text", ["\n", ", ", "5. m "], ids=["lines", "commas", "numbers"])
def test_a_long_text_without_an_end_is_looked_through_quickly(text: str) -> None:
    """Everybody else waits meanwhile, whatever it comes in."""
    whole, pieces = SentenceBuffer(), SentenceBuffer()
    assert list(whole.push(40_000 * text)) == []
    assert [one for letter in 800 * text for one in pieces.push(letter)] == []
