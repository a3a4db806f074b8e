from __future__ import annotations

from cosyserve.triton.streams import Streams, stream_key


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_state_is_taken_once() -> None:
    streams: Streams[str] = Streams(4, 10)
    streams.put("key", "state", "owner")
    assert streams.take("key") == "state"
    assert streams.take("key") is None
    assert len(streams) == 0


def test_what_nobody_asks_for_goes() -> None:
    clock = Clock()
    streams: Streams[str] = Streams(4, 10, clock)
    streams.put("old", "a", "owner")
    clock.now = 6
    streams.put("new", "b", "owner")
    clock.now = 11
    assert len(streams) == 1
    assert streams.take("old") is None
    assert streams.take("new") == "b"


def test_there_are_never_too_many() -> None:
    streams: Streams[int] = Streams(2, 10)
    for number in range(5):
        streams.put(str(number), number, "owner")
    assert [streams.take(str(number)) for number in range(5)] == [None, None, None, 3, 4]


def test_an_owner_is_forgotten_and_no_other() -> None:
    streams: Streams[str] = Streams(4, 10)
    streams.put("a", "hers", "she")
    streams.put("b", "his", "he")
    streams.forget("she")
    assert streams.take("a") is None
    assert streams.take("b") == "his"


def test_whatever_differs_is_another_stream() -> None:
    same = ("voice", 1, 1.0, True, (1, 2, 3))
    others = [
        ("other", 1, 1.0, True, (1, 2, 3)),
        ("voice", 2, 1.0, True, (1, 2, 3)),
        ("voice", 1, 1.5, True, (1, 2, 3)),
        ("voice", 1, 1.0, False, (1, 2, 3)),
        ("voice", 1, 1.0, True, (1, 2)),
        ("voice", 1, 1.0, True, (1, 2, 4)),
    ]
    assert stream_key(*same) == stream_key(*same)
    assert len({stream_key(*one) for one in (same, *others)}) == 7
