import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cosyserve.text import SPECIAL_TOKENS, TextTokenizer
from cosyserve.text.tokens.piece_tokenizer import PieceTokenizer

WORDS = st.sampled_from(
    ["你好", "删除", "，请", "世界", " hello", "it's", "don't", "   ", "\n", "3.14", "é", "e\u0301",
     "!?", "...", "(", "한", "\u1112\u1161\u11ab", "😀", "豈", "の", "’re", "<|im",
     *SPECIAL_TOKENS[:6]]
)  # fmt: skip
TEXT = st.lists(st.one_of(WORDS, st.text(max_size=3)), max_size=12).map("".join)


def in_pieces(tokenizer: TextTokenizer, text: str, seed: int) -> list[int]:
    pieces, draw, ids, at = PieceTokenizer(tokenizer), random.Random(seed), [], 0
    while at < len(text):
        step = draw.randint(1, 4)
        ids += pieces.push(text[at : at + step])
        at += step
    return ids + pieces.flush()


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXT, seed=st.integers(0, 9))
def test_the_ids_are_those_of_the_whole_text(small: TextTokenizer, text: str, seed: int) -> None:
    assert in_pieces(small, text, seed) == small.encode(text)


def test_the_ids_are_those_of_the_whole_text_in_qwen2(qwen2: TextTokenizer) -> None:
    pieces, draw = PieceTokenizer(qwen2), random.Random(0)
    for _ in range(300):
        text = "".join(draw.choices("你好删除，请世界参数 helo wrd.'s!3é한の\n[mn]", k=30))
        ids = [i for c in text for i in pieces.push(c)] + pieces.flush()
        assert ids == qwen2.encode(text), text


def test_ids_come_early(qwen2: TextTokenizer) -> None:
    pieces = PieceTokenizer(qwen2)
    assert pieces.push("你好世") == qwen2.encode("你好")
    assert pieces.push("界 hel") == qwen2.encode("世界")
    assert pieces.push("lo wor") == qwen2.encode(" hello")
    assert pieces.flush() == qwen2.encode(" wor")


@pytest.mark.parametrize("token", SPECIAL_TOKENS)
def test_a_special_token_may_arrive_in_parts(small: TextTokenizer, token: str) -> None:
    pieces = PieceTokenizer(small)
    ids = [i for c in f"hi{token}" for i in pieces.push(c)]
    assert ids == small.encode(f"hi{token}")
    assert pieces.flush() == []
