"""The law of an utterance: which tokens are due, which chunk is the last, what can't be spoken."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.contracts import FinishReason
from cosyserve.engine.compute.hops import hop_ends
from cosyserve.engine.scheduling.take import MAX_EXTRA_TOKENS, Take, UnusableTakeError

LOUD = np.full(10, 0.5, np.float32)
SILENT = np.zeros(10, np.float32)


@dataclass
class Tokens:
    tokens: list[int] = field(default_factory=list)
    finish: FinishReason | None = None


def take_of(source: Tokens, *, stream: bool = True, prompt_tokens: int = 0) -> Take:
    return Take(source, stream=stream, prompt_tokens=prompt_tokens, grid=25, lookahead=3, hop=25)


@pytest.mark.parametrize(
    ("tokens", "finish", "last"),
    [
        (27, None, False),
        (27, "stop", True),
        (28, None, False),
        (28, "stop", False),  # the end was drawn after the chunk could be made
        (28, "length", True),  # the last token was the chunk's last
        (90, "stop", False),
    ],
)
def test_load_does_not_decide_which_chunk_is_the_last(
    tokens: int, finish: FinishReason | None, last: bool
) -> None:
    assert take_of(Tokens([0] * tokens, finish)).final is last


@given(count=st.integers(1, 600), steps=st.lists(st.integers(1, 80)), prompt=st.integers(0, 200))
def test_chunks_are_the_same_however_far_the_lm_runs_ahead(
    count: int, steps: list[int], prompt: int
) -> None:
    """Chunks of an LM that was done before the first of them, and of one that is asked in steps."""

    def chunks(arrivals: list[int]) -> list[tuple[int, bool]]:
        source = Tokens()
        take, spoken = take_of(source, prompt_tokens=prompt), []
        for end in arrivals:
            source.tokens = list(range(end))
            source.finish = "stop" if end == count else None
            while take.ready:
                last = take.final
                spoken.append((len(take.due()), last))
                take.advance(LOUD)
                if last:
                    break
        return spoken

    ends = [end for end in np.cumsum(steps).tolist() if end < count]
    assert chunks([*ends, count]) == chunks([count])
    lengths = [length for length, _ in chunks([count])]
    assert lengths[-1] == count
    assert all(a <= b for a, b in pairwise(lengths))
    assert all((prompt + length - 3) % 25 == 0 for length in lengths[:-1])


@given(count=st.integers(1, 600), steps=st.lists(st.integers(1, 80)), prompt=st.integers(0, 200))
def test_extended_chunks_hold_all_tokens_once(count: int, steps: list[int], prompt: int) -> None:
    """However far the LM runs ahead; the first chunk stays short, and ends are on the grid."""
    source = Tokens()
    take, spoken = take_of(source, prompt_tokens=prompt), []
    arrivals = [end for end in np.cumsum(steps).tolist() if end < count]
    for end in [*arrivals, count]:
        source.tokens = list(range(end))
        source.finish = "stop" if end == count else None
        while take.ready and not (spoken and spoken[-1][1]):
            take.extend()
            due, last = len(take.due()), take.final
            source.tokens = list(range(count))  # the LM goes on meanwhile, even to its end
            source.finish = "stop"
            assert (len(take.due()), take.final) == (due, last)
            source.tokens = list(range(end))
            source.finish = "stop" if end == count else None
            spoken.append((due - (0 if last else 3), last, take.advance(LOUD)[1]))
    ends = [end for end, _, _ in spoken]
    assert [tokens for _, _, tokens in spoken] == np.diff([0, *ends]).tolist()
    assert ends[-1] == count
    assert [last for _, last, _ in spoken] == [False] * (len(spoken) - 1) + [True]
    assert all((prompt + end) % 25 == 0 for end in ends[:-1])
    assert ends[0] <= 8 + 24 + 3 + MAX_EXTRA_TOKENS


@given(count=st.integers(1, 600), steps=st.lists(st.integers(1, 80)))
def test_fixed_chunks_never_take_more_than_their_hop(count: int, steps: list[int]) -> None:
    """However far the LM runs ahead: the flow's speech would be another."""
    source = Tokens()
    take = Take(source, stream=True, prompt_tokens=7, grid=1, lookahead=3, hop=25, fixed=True)
    ends: list[int] = []
    for end in [*(end for end in np.cumsum(steps).tolist() if end < count), count]:
        source.tokens = list(range(end))
        source.finish = "stop" if end == count else None
        while take.ready and sum(ends) < count:
            take.extend()
            assert take.may_be_last == take.final
            ends.append(take.advance(LOUD)[1])
    hops, wanted = hop_ends(7, 1, 25), []
    while count >= (end := next(hops)) + 3:
        wanted.append(end)
    assert np.cumsum(ends).tolist() == [*wanted, count]


def test_a_whole_text_is_one_chunk_of_all_tokens() -> None:
    source = Tokens([0] * 500)
    take = take_of(source, stream=False)
    assert not take.ready
    source.finish = "stop"
    assert (take.ready, take.final, len(take.due())) == (True, True, 500)
    assert take.advance(LOUD)[1] == 500


@pytest.mark.parametrize(
    ("source", "first", "message"),
    [
        (Tokens([1], "error"), False, "NaN"),
        (Tokens([], "stop"), False, "ended before it said anything"),
        (Tokens([1], "length"), True, "never came to an end"),
    ],
)
def test_what_can_not_be_spoken(source: Tokens, first: bool, message: str) -> None:
    with pytest.raises(UnusableTakeError, match=message):
        take_of(source).check(first=first)


def test_an_utterance_that_was_cut_off_is_spoken_when_no_other_take_is_left() -> None:
    take_of(Tokens([1], "length")).check(first=False)
    take_of(Tokens([0] * 90, "error")).check(first=True)  # not before its last chunk


def test_silence_is_no_speech_unless_something_was_heard_before() -> None:
    source = Tokens([0] * 40)
    with pytest.raises(UnusableTakeError, match="silent"):
        take_of(Tokens([0] * 5, "stop")).advance(SILENT)
    take = take_of(source)
    take.advance(LOUD)
    source.finish = "stop"
    assert take.final
    assert take.advance(SILENT)[1] == 15


def test_a_pause_comes_behind_the_last_chunk_alone() -> None:
    source = Tokens([0] * 40)
    take = Take(source, stream=True, prompt_tokens=0, grid=25, lookahead=3, hop=25, pause=6)
    assert take.advance(LOUD)[0].tolist() == LOUD.tolist()
    source.finish = "stop"
    samples, tokens = take.advance(LOUD)
    assert samples.tolist() == [*LOUD.tolist(), *[0.0] * 6]
    assert samples.dtype == np.float32
    assert tokens == 15
