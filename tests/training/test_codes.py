"""What codes say, and that nothing that is said gets lost."""

from __future__ import annotations

from itertools import groupby

import pytest
import torch

from training import codes
from training.data import MARKS, UNKNOWN, Corpus
from training.sizes import CODE_DIMS


def spelled(said: str, octave: float = 0.0) -> torch.Tensor:
    """The codes of marks that sound for 20 ms each."""
    phone = torch.tensor([MARKS.index(mark) for mark in said])
    order, run = phone.unique_consecutive(return_inverse=True)
    number, place = codes.placed(run[None])
    return codes.spelled(order[number], place, torch.full(number.shape, octave))


def marks(said: torch.Tensor) -> str:
    return "".join(MARKS[i] for i in codes.parted(said)[0].flatten().tolist())


def runs(said: torch.Tensor) -> str:
    return "".join(mark for mark, _ in groupby(marks(said)))


def test_every_code_is_its_parts_again() -> None:
    every = torch.arange(3**CODE_DIMS)
    parts = codes.parted(every)
    assert torch.equal(codes.joined(*parts), every)
    assert [int(part.max()) for part in parts] == [80, codes.PLACES - 1, codes.LEVELS - 1]


def test_neighbours_differ_in_one_digit() -> None:
    digits = codes.digits(codes.GRAY, codes.MARK_DIGITS)
    assert (digits.diff(dim=0).abs().sum(1) == 1).all()
    levels = codes.digits(codes.GRAY[: codes.LEVELS], codes.MARK_DIGITS)
    assert (levels[:, 2:] == -1).all()


def test_short_marks_are_kept() -> None:
    said = "__sttɹɪppppæ_ætttttt"
    assert runs(spelled(said)) == "_stɹɪpæ_æt"


def test_a_code_says_where_in_the_token_its_mark_stands() -> None:
    found = spelled("ssstiiiizz")
    assert marks(found) == "stiiz"
    assert codes.parted(found)[1].tolist() == [
        [codes.WHOLE, codes.AFTER_LAST, codes.WHOLE, codes.WHOLE, codes.WHOLE]
    ]
    assert codes.parted(spelled("stiiii"))[1][0, 0] == codes.BEFORE_NEXT


def test_pauses_count_down_and_voices_rise() -> None:
    assert codes.parted(spelled("__" * 4 + "ii"))[2][0].tolist() == [3, 2, 1, 0, 4]
    assert codes.parted(spelled("ii", octave=2 * codes.PITCH_STEP))[2].item() == 6
    assert codes.parted(spelled("ii", octave=-3.0))[2].item() == 0


def test_unknown_marks_have_no_code() -> None:
    mark = torch.tensor([[UNKNOWN, 3]])
    found = codes.spelled(mark, torch.zeros_like(mark), torch.zeros(1, 2))
    assert found[0, 0] == UNKNOWN
    assert found[0, 1] >= 0


def test_takes_say_the_same_at_another_pace(corpus: Corpus) -> None:
    original, *others = codes.takes(corpus)
    assert len(original.codes) == corpus.tokens
    assert len(others) == codes.TAKES - 1
    for take in others:
        assert len(take.codes) == int(take.lengths.sum()) == len(take.source) == len(take.pace)
        rows = zip(
            original.codes.split(original.lengths.tolist()),
            take.codes.split(take.lengths.tolist()),
            strict=True,
        )
        for row, again in rows:
            assert 0.8 < len(again) / len(row) < 1.2
            assert runs(again).strip("_") in runs(row)


def tokens(said: str) -> list[int]:
    """The codes of marks that fill a token each."""
    return spelled("".join(2 * mark for mark in said))[0].tolist()


@pytest.mark.parametrize(
    ("phonemes", "before", "after"),
    [
        ("bˈʌs stˈɑp", "bʌssstɑp", "bʌs_sstɑp"),
        ("ˌWəɹ ɹˈOd", "WəɹOOd", "Wəɹ_ɹOOd"),  # one token is for both
        ("wˈʌt tˈIm, mˈæn", "wʌttIm_mæn", "wʌt_tIm_mæn"),  # the comma has its pause
        ("wˈʌt tˈIm, mˈæn", "wʌttImmæn", "wʌttImmæn"),  # or none: other marks than those asked for
        ("bˈʌs stˈɑp", "bʌs_stɑp", "bʌs_stɑp"),  # it pauses there already
        ("ʌnnˈOn", "ʌnnOn", "ʌnnOn"),  # inside of a word
        ("sˈɑp", "sɑp", "sɑp"),
    ],
)
def test_the_same_sound_of_two_words_is_parted(phonemes: str, before: str, after: str) -> None:
    assert marks(torch.tensor(codes.separated(phonemes, tokens(before)))) == after


def test_a_parted_sound_counts_down_to_the_gap() -> None:
    assert codes.separated("bˈʌs stˈɑp", tokens("bʌsssstɑp")) == tokens("bʌss_sstɑp")
