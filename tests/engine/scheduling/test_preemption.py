"""A session whose text does not go on gives its slot up, and later goes on where it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from zlib import crc32

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyserve.contracts import AudioChunk, Sampling, SpeechRequest
from cosyserve.engine.compute.generation import Generation, LMLike, WholeText
from cosyserve.engine.compute.graphs.device_queue import DeviceQueue
from cosyserve.engine.compute.lm_runner import LMRunner
from cosyserve.engine.scheduling.admission import STALL_SECONDS
from cosyserve.engine.scheduling.scheduler import Scheduler
from cosyserve.engine.scheduling.session import ARRIVING_TOKENS, Session, Utterance
from cosyserve.errors import CosyError, OverloadError
from cosyserve.models.config import LMConfig
from cosyserve.models.lm.bistream import Bistream
from cosyserve.models.lm.lm import SpeechLM
from cosyserve.text.numbers import Reader
from tests.engine.mocks import VOICE, Clock, CountingLM, Humming, HummingToken2Wav
from tests.engine.scheduling.slow_token2wav import SlowToken2Wav, until

CONFIG = LMConfig(16, 24, 1, 2, 1, text_vocab=50, speech_tokens=60)
TEXT = range(10, 22)  # the LM reads five of them, and five once more


@dataclass
class Client:
    session: Session
    heard: list[AudioChunk | CosyError] = field(default_factory=list)

    @property
    def row(self) -> Generation:
        return self.session.utterances[0].generation

    @property
    def finished(self) -> bool:
        return bool(self.heard) and isinstance(self.heard[-1], AudioChunk) and self.heard[-1].final

    @property
    def said(self) -> int:
        return sum(chunk.tokens for chunk in self.heard if isinstance(chunk, AudioChunk))


class HashingLM(CountingLM):
    """What it draws depends on all that it was fed since the row joined."""

    def join(self, row: Generation) -> None:
        assert self.free
        assert row.length == 0
        self.rows.append(row)

    def leave(self, row: Generation) -> None:
        super().leave(row)
        row.length = 0

    def step(self) -> bool:
        fed = [row for row in self.rows if row.next_inputs()]
        for row in fed:
            row.context = [*(row.context if row.length else ()), *row.pending]  # type: ignore[attr-defined]
            row.length += len(row.pending)
            row.pending.clear()
            token = crc32(repr((row.seed, row.context)).encode()) % CONFIG.classes  # type: ignore[attr-defined]
            ends = token == CONFIG.eos and len(row.drawn) < row.text.min_tokens
            allowed = token not in row.text.forbidden and not ends
            row.take(row.text.forced or (token if allowed else 0))
        return bool(fed)


def lm_of_random_weights(slots: int) -> LMRunner:
    """As on a GPU, where the host reads one step behind."""
    torch.manual_seed(0)
    lm = SpeechLM(CONFIG).eval().requires_grad_(False)
    return LMRunner(lm, slots, 256, DeviceQueue(torch.device("cpu"), static=True))


LMS = pytest.mark.parametrize("lm", [HashingLM, lm_of_random_weights])
Maker = Callable[[int], LMLike]


class House:
    """Its texts arrive, or have as many tokens as they say."""

    def __init__(
        self,
        slots: int = 1,
        waiting: int = 8,
        lm: Maker = HashingLM,
        token2wav: HummingToken2Wav | None = None,
    ) -> None:
        self.clock = Clock()
        self.clock.now = 100.0
        self.scheduler = Scheduler(
            *(lm(slots), [token2wav or HummingToken2Wav()], self._plan),
            slots=slots,
            max_waiting=waiting,
            clock=self.clock,
        )

    def _plan(self, asked: SpeechRequest, read: Reader, device: int) -> list[Utterance]:
        def generate(attempt: int) -> Generation:
            if isinstance(asked.text, str):
                text, most = WholeText(CONFIG, [CONFIG.sos, 3, CONFIG.task], 99), int(asked.text)
                return Generation(text, asked.seed, Sampling(), most)
            return Generation(Bistream(CONFIG, [3, 4, 5], [9, 8]), asked.seed, Sampling(), 80)

        return [Utterance(generate, Humming("a"), stream=True)]  # type: ignore[arg-type]

    def open(self, text: str | None = None, seed: int = 1) -> Client:
        """None: it arrives."""
        heard: list[AudioChunk | CosyError] = []
        asked = SpeechRequest(iter(()) if text is None else text, VOICE, seed=seed, stream=True)
        return Client(self.scheduler.open(asked, heard.append), heard)

    def stall(self, seed: int = 1) -> Client:
        """A client whose text begins, and does not go on."""
        client = self.open(seed=seed)
        client.session.push(TEXT[:7])
        self.run()
        self.clock.pass_by(STALL_SECONDS)
        return client

    def run(self) -> None:
        for _ in range(2_000):
            if not self.scheduler.step():
                return
        raise AssertionError("never at rest")


def go_on(client: Client, done: int = 7) -> None:
    client.session.push(TEXT[done:])
    client.session.end()


@cache
def alone(seed: int = 1, lm: Maker = HashingLM) -> tuple[list[int], list[int]]:
    """What is drawn and said of a text that never stalls."""
    house = House(lm=lm)
    client = house.open(seed=seed)
    row = client.row
    go_on(client, 0)
    house.run()
    assert client.finished
    return row.drawn, row.tokens


@LMS
def test_who_stalls_gives_way_and_goes_on_where_it_was(lm: Maker) -> None:
    house = House(lm=lm)
    stalled = house.stall()
    row = stalled.row
    drawn_before = list(row.drawn)
    assert drawn_before
    other = house.open("30")
    house.run()
    assert other.finished
    assert not stalled.finished
    assert (house.scheduler.lm.rows, row.drawn) == ([], drawn_before)
    go_on(stalled)
    house.run()
    assert stalled.finished
    assert (row.drawn, row.tokens) == alone(1, lm)
    assert stalled.said == len(row.tokens)
    house.scheduler.check_idle()


@LMS
def test_a_text_that_lets_itself_be_waited_for_a_moment_keeps_its_slot(lm: Maker) -> None:
    house = House(lm=lm)
    stalled = house.open()
    stalled.session.push(TEXT[:7])
    other = house.open("30")
    for _ in range(200):
        assert house.scheduler.step(), "nobody would look whether it has stalled for too long"
        house.clock.pass_by(STALL_SECONDS / 400)
    assert stalled.session in house.scheduler.running
    assert not other.heard
    house.clock.pass_by(STALL_SECONDS)
    house.run()
    assert other.finished


def test_nobody_gives_way_where_nobody_waits() -> None:
    house = House(slots=2)
    stalled, _ = house.stall(), house.open("30")
    house.run()
    assert stalled.session in house.scheduler.running


def test_who_goes_on_waits_in_its_turn() -> None:
    house = House()
    stalled = house.stall()
    clients = {"first": house.open("30"), "second": house.open("20")}
    house.scheduler.step()
    go_on(stalled)
    house.scheduler.step()
    clients |= {"stalled": stalled, "third": house.open("10")}
    ends = []
    while house.scheduler.step():
        ends += [name for name, one in clients.items() if one.finished and name not in ends]
    assert ends == ["first", "second", "stalled", "third"]


def test_who_has_stalled_the_longest_gives_way_first() -> None:
    house = House(slots=2)
    longest = house.stall()
    shorter = house.stall(seed=2)
    other = house.open("10")
    house.scheduler.step()
    assert house.scheduler.running == [shorter.session, other.session]
    assert list(house.scheduler.waiting) == [longest.session]


def test_many_that_stall_keep_nobody_out() -> None:
    house = House(slots=2, waiting=1)
    many = [house.stall(seed) for seed in range(12)]
    other = house.open("10")
    house.run()
    assert other.finished
    stats = house.scheduler.stats()
    assert (stats.running, stats.waiting) == (1, 11)
    for client in many:
        go_on(client)
    house.scheduler.step()
    with pytest.raises(OverloadError):  # now they wait for a slot, as others do
        house.open("10")
    house.run()
    assert all(client.finished for client in many)
    house.scheduler.check_idle()


def test_who_goes_on_has_not_waited_for_a_slot_before() -> None:
    """Else those who come then would be refused, as if the queue did not move."""
    house = House()
    stalled, _ = house.stall(), house.open("500")
    house.scheduler.step()
    house.clock.pass_by(10.0)
    go_on(stalled)
    house.scheduler.step()
    house.open("10")


def test_who_has_written_too_little_takes_nobodys_slot() -> None:
    house = House(slots=2, waiting=1)
    many = [house.open(seed=seed) for seed in range(12)]
    rows = [client.row for client in many]
    for client in many[:6]:
        client.session.push(TEXT[:1])
    other = house.open("10")
    house.run()
    assert other.finished
    assert house.scheduler.running == []
    for client in many:
        go_on(client, 1 if client in many[:6] else 0)
    house.run()
    assert [(row.drawn, row.tokens) for row in rows] == [*map(alone, range(12))]
    house.scheduler.check_idle()


def test_who_has_not_had_a_slot_keeps_its_place() -> None:
    house = House()
    early, busy, late = house.open(), house.open("30"), house.open("10")
    house.scheduler.step()
    go_on(early, 0)
    ends = []
    while house.scheduler.step():
        ends += [one for one in (early, busy, late) if one.finished and one not in ends]
    assert ends == [busy, early, late]


def test_slots_that_would_be_given_up_are_not_taken() -> None:
    house = House(slots=2, waiting=0)
    stalled = [house.stall(), house.stall(seed=2)]
    others = [house.open("10"), house.open("20")]
    with pytest.raises(OverloadError):
        house.open("10")
    house.run()
    assert all(other.finished for other in others)
    assert not any(client.finished for client in stalled)


@pytest.mark.parametrize("stalls", [False, True])
def test_who_stalls_is_not_waited_for(stalls: bool) -> None:
    """Else the time between two requests were the time that a slot takes, and those who come at
    once were refused."""
    house = House(slots=2)
    if stalls:
        house.stall()
        house.open("5"), house.open("5")
        house.run()
        assert len(house.scheduler.waiting) == 1
    for _ in range(6):
        house.clock.pass_by(20.0)
        house.open("5")
        house.run()
    together = [house.open("5") for _ in range(6)]
    house.run()
    assert all(client.finished for client in together)


def test_what_was_drawn_is_spoken_before_it_gives_way() -> None:
    token2wav = SlowToken2Wav()
    house = House(slots=2, token2wav=token2wav)
    stalled = house.open(seed=0)
    stalled.session.push(TEXT[:7])
    until(house.scheduler, token2wav, urgent=True)
    drawing, other = house.open("500"), house.open("10")
    for _ in range(5):
        assert house.scheduler.step()
        house.clock.pass_by(STALL_SECONDS)
    assert stalled.row.text.feed() is None
    assert house.scheduler.running == [stalled.session, drawing.session]
    token2wav.finish(urgent=True)
    for _ in range(5):
        house.scheduler.step()
        house.clock.pass_by(STALL_SECONDS)
    assert stalled.said > 0
    assert house.scheduler.running == [drawing.session, other.session]


def test_the_first_and_the_last_chunk_agree_on_when_it_got_a_slot() -> None:
    house = House()
    stalled = house.stall()
    house.open("30")
    house.run()
    house.clock.pass_by(5.0)
    go_on(stalled)
    house.run()
    last = stalled.heard[-1]
    assert isinstance(last, AudioChunk)
    assert last.timeline
    assert last.timeline.admitted == 0.0


def test_who_leaves_while_it_is_out_leaves_nothing() -> None:
    house = House()
    stalled, too_long = house.stall(), house.stall(seed=2)
    other = house.open("10")
    house.scheduler.step()
    assert list(house.scheduler.waiting) == [stalled.session, too_long.session]
    before = len(stalled.heard)
    house.scheduler.cancel(stalled.session)
    with pytest.raises(CosyError) as error:
        too_long.session.push([3] * ARRIVING_TOKENS)
    house.scheduler.fail(too_long.session, error.value)
    assert list(house.scheduler.waiting) == []
    house.run()
    house.scheduler.check_idle()
    assert other.finished
    assert len(stalled.heard) == before
    assert too_long.heard[-1] is error.value


Moves = st.lists(st.tuples(st.integers(0, 4), st.sampled_from("pppppc+")), max_size=40)


@settings(max_examples=20)
@given(Moves)
def test_whoever_stalls_whenever_says_the_same(moves: list[tuple[int, str]]) -> None:
    house = House(slots=2)
    clients = [house.open(seed=seed) for seed in range(5)]
    rows, pushed, left = [client.row for client in clients], [0] * 5, set()
    for who, move in moves:
        session = clients[who].session
        if move == "p" and pushed[who] < len(TEXT):
            session.push([TEXT[pushed[who]]])
            pushed[who] += 1
        elif move == "c":
            house.scheduler.cancel(session)
            left.add(who)
        elif move == "+":
            house.clock.pass_by(STALL_SECONDS)
        for _ in range(4):
            house.scheduler.step()
    for who in {*range(5)} - left:
        go_on(clients[who], pushed[who])
    house.run()
    house.scheduler.check_idle()
    for who in {*range(5)} - left:
        assert (rows[who].drawn, rows[who].tokens) == alone(who)
        assert clients[who].said == len(rows[who].tokens)
