"""Requests on their way to the scheduler: places, plans and text in pieces, from other threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cosyserve.contracts import AudioChunk, Mode, SpeechRequest
from cosyserve.engine.compute.generation import Generation
from cosyserve.engine.scheduling.intake import Intake, Ticket
from cosyserve.engine.scheduling.loop import Loop
from cosyserve.engine.scheduling.plan import AT_ONCE
from cosyserve.engine.scheduling.scheduler import Scheduler
from cosyserve.engine.scheduling.session import Utterance
from cosyserve.errors import CosyError, InputError, OverloadError
from cosyserve.models.lm.bistream import Bistream
from cosyserve.text import byte_tokenizer
from cosyserve.text.language import Language
from cosyserve.text.numbers import Reader
from tests.engine.mocks import CONFIG, VOICE, Humming, mock_scheduler, plan, request
from tests.waiting import PATIENCE, wait_until

Heard = list[AudioChunk | CosyError]


class Desk:
    """A scheduler in its thread, whose plans can be held back."""

    def __init__(self, slots: int = 2, waiting: int = 2) -> None:
        self.scheduler, _, self.lm, _ = mock_scheduler(slots, waiting)
        self.hold: dict[str, threading.Event] = {}
        self.planned: list[str] = []
        self.planned_by: list[threading.Thread] = []
        self.ready_to_compute: list[threading.Thread] = []
        self.numbers: list[str] = []
        self.scheduler.plan = self._plan
        self.loop = Loop(self.scheduler)
        self.intake = Intake(self.loop, byte_tokenizer(), self._read, self._before_nets)
        self.thread = threading.Thread(target=self.loop.run)
        self.thread.start()

    def open(self, asked: SpeechRequest) -> tuple[Ticket, Heard]:
        heard: Heard = []
        ticket = Ticket(self.intake, asked, heard.append)
        ticket.open()
        return ticket, heard

    def ask(self, question: Callable[[Scheduler], Any]) -> Any:
        answers: list[Any] = []
        done = threading.Event()

        def command(scheduler: Scheduler) -> None:
            answers.append(question(scheduler))
            done.set()

        self.loop.submit(command)
        assert done.wait(PATIENCE)
        return answers[0]

    def close(self) -> None:
        for event in self.hold.values():
            event.set()
        self.intake.close()
        self.loop.stop()
        self.thread.join()

    def _read(self, text: str, _: Language) -> str:
        """As a grammar reads that takes its time."""
        if text in self.hold:
            assert self.hold[text].wait(2 * PATIENCE)
        else:
            self.numbers.append(text)
        return text

    def _before_nets(self) -> None:
        self.ready_to_compute.append(threading.current_thread())

    def _plan(self, asked: SpeechRequest, read: Reader, _: int) -> list[Utterance]:
        if not isinstance(asked.text, str):
            return [arriving(asked)]
        name = asked.text.partition(":")[0]
        if name in self.hold:
            read(name, Language.ENGLISH)
            read("1", Language.ENGLISH)
        self.planned.append(name)
        self.planned_by.append(threading.current_thread())
        if name == "bad":
            raise InputError("bad text")
        if name == "odd":
            raise ZeroDivisionError
        return plan(asked)


def arriving(asked: SpeechRequest) -> Utterance:
    def generate(attempt: int) -> Generation:
        return Generation(Bistream(CONFIG, [], []), asked.seed, asked.sampling, 10_000)

    return Utterance(generate, Humming("pieces"), stream=asked.stream)  # type: ignore[arg-type]


@pytest.fixture
def desk() -> Iterator[Desk]:
    found = Desk()
    yield found
    found.close()


def final(heard: Heard) -> bool:
    return bool(heard) and isinstance(heard[-1], AudioChunk) and heard[-1].final


def test_a_slow_plan_holds_up_nobody(desk: Desk) -> None:
    desk.hold["slow"] = threading.Event()
    _, slow = desk.open(request("slow", 30))
    _, quick = desk.open(request("quick", 30))
    wait_until(lambda: final(quick))
    assert slow == []
    desk.hold["slow"].set()
    wait_until(lambda: final(slow))
    assert desk.ask(lambda scheduler: scheduler.idle)


def test_who_is_alone_is_planned_without_another_thread(desk: Desk) -> None:
    for text in ("quick", "bad", "odd"):
        _, heard = desk.open(request(text, 30))
        wait_until(lambda heard=heard: heard)
        wait_until(lambda: desk.ask(lambda scheduler: scheduler.idle))
    assert desk.planned == ["quick", "bad", "odd"]
    assert desk.planned_by == 3 * [desk.thread]


def test_what_takes_its_time_is_planned_in_another_thread(desk: Desk) -> None:
    """A number that needs a grammar, a long text, and whoever comes while others are there."""
    desk.hold["slow"] = threading.Event()
    _, slow = desk.open(request("slow", 5))
    _, second = desk.open(request("second", 5))
    wait_until(lambda: final(second))
    desk.hold["slow"].set()
    wait_until(lambda: final(slow))
    wait_until(lambda: desk.ask(lambda scheduler: scheduler.idle))
    _, long = desk.open(request(AT_ONCE * "a", 5))
    wait_until(lambda: final(long))
    assert desk.planned == ["second", "slow", AT_ONCE * "a"]
    assert desk.thread not in desk.planned_by


def test_a_thread_that_hears_a_recording_gets_ready_to_compute(desk: Desk) -> None:
    _, spoken = desk.open(request(AT_ONCE * "a", 5))
    wait_until(lambda: final(spoken))
    assert desk.ready_to_compute == []
    recording = np.zeros(16_000, np.float32)
    _, heard = desk.open(replace(request("", 5), mode=Mode.CONVERT, source=recording))
    wait_until(lambda: final(heard))
    assert desk.ready_to_compute == desk.planned_by[1:] != [desk.thread]


def test_a_session_that_is_being_planned_has_its_place(desk: Desk) -> None:
    """Two slots and two that wait: the fifth is refused though nobody runs yet, and at once."""
    desk.hold["held"] = threading.Event()
    held = [desk.open(request("held", 5)) for _ in range(4)]
    _, refused = desk.open(request("quick", 5))
    wait_until(lambda: refused)
    assert isinstance(refused[0], OverloadError)
    held[0][0].cancel()
    _, welcome = desk.open(request("quick", 5))
    wait_until(lambda: final(welcome))
    desk.hold["held"].set()
    wait_until(lambda: all(final(heard) for _, heard in held[1:]))
    assert held[0][1] == []
    assert desk.ask(lambda scheduler: scheduler.idle)


def test_a_session_cancelled_while_it_is_planned_never_runs(desk: Desk) -> None:
    desk.hold["slow"] = threading.Event()
    tickets = [desk.open(request("slow", 5)) for _ in range(4)]
    for ticket, _ in tickets:
        ticket.cancel()
    assert desk.ask(lambda scheduler: scheduler.idle)
    desk.hold["slow"].set()
    _, heard = desk.open(request("next", 5))
    wait_until(lambda: final(heard))
    assert desk.numbers == desk.planned[:-1] == []  # the plan was given up, too
    assert all(found == [] for _, found in tickets)


@pytest.mark.parametrize(("name", "message"), [("bad", "bad text"), ("odd", "internal error")])
def test_a_plan_that_fails_is_told(desk: Desk, name: str, message: str) -> None:
    _, heard = desk.open(request(name, 5))
    wait_until(lambda: heard)
    assert message in str(heard[0])
    assert desk.ask(lambda scheduler: scheduler.idle)


def test_text_in_pieces_comes_in_order_after_its_plan(desk: Desk) -> None:
    ticket, heard = desk.open(SpeechRequest(iter(()), VOICE, stream=True))
    for piece in ("one ", "two ", "three "):
        ticket.push(piece)
    ticket.end()

    def text(scheduler: Scheduler) -> int:
        return sum(session.text_tokens for session in scheduler.running)

    wait_until(lambda: heard or desk.ask(text) == len("one two three "))
    ticket.cancel()
    assert desk.ask(lambda scheduler: scheduler.idle)


def test_too_much_text_in_pieces_ends_its_session_alone(desk: Desk) -> None:
    ticket, heard = desk.open(SpeechRequest(iter(()), VOICE, stream=True))
    _, other = desk.open(request("other", 200))
    for _ in range(30):
        ticket.push("many words and more " * 5)
    wait_until(lambda: heard and final(other))
    assert isinstance(heard[-1], InputError)
    assert "piece by piece" in str(heard[-1])
    ticket.push("more")
    ticket.end()
    assert desk.ask(lambda scheduler: scheduler.idle)


class Reading:
    """Plans utterances of a long text, one after another, and remembers which."""

    def __init__(self, sizes: str, broken: int = -1) -> None:
        self.asked = SpeechRequest(f"{'long ' * 100}:{sizes}", VOICE, stream=True)
        self.planned: list[int] = []
        self.broken = broken  # the number of the one that can't be planned

    def __call__(self, asked: SpeechRequest, read: Reader, _: int) -> Iterator[Utterance]:
        for number, utterance in enumerate(plan(asked)):
            if number:
                read("later", Language.ENGLISH)
            if number == self.broken:
                raise InputError("bad text")
            self.planned.append(number)
            yield utterance


def test_only_the_first_utterance_is_planned_before_the_first_audio(desk: Desk) -> None:
    desk.scheduler.plan = reading = Reading("200+60+60")
    planned: list[list[int]] = []
    heard: Heard = []

    def sink(item: AudioChunk | CosyError) -> None:
        planned.append(list(reading.planned))
        heard.append(item)

    Ticket(desk.intake, reading.asked, sink).open()
    wait_until(lambda: final(heard))
    assert planned[0] == [0]
    assert reading.planned == [0, 1, 2]
    assert sum(chunk.tokens for chunk in heard if isinstance(chunk, AudioChunk)) == 320


def test_whoever_has_left_has_nothing_more_planned(desk: Desk) -> None:
    desk.scheduler.plan = reading = Reading("+".join(["200"] * 50))
    desk.hold["later"] = threading.Event()
    ticket, heard = desk.open(reading.asked)
    wait_until(lambda: heard)
    ticket.cancel()
    assert desk.ask(lambda scheduler: scheduler.idle)
    desk.hold["later"].set()
    desk.intake.threads.shutdown()  # when all that was begun is over
    assert len(reading.planned) <= 2


def test_what_is_planned_too_late_is_waited_for(desk: Desk) -> None:
    """Nothing is lost, and nobody else waits."""
    desk.scheduler.plan = reading = Reading("60+60")
    desk.hold["later"] = threading.Event()
    _, heard = desk.open(reading.asked)
    wait_until(lambda: heard and desk.ask(lambda scheduler: not scheduler.step()))
    assert not final(heard)
    desk.scheduler.plan = desk._plan
    _, other = desk.open(request("other", 30))
    wait_until(lambda: final(other))
    desk.hold["later"].set()
    wait_until(lambda: final(heard))
    assert sum(chunk.tokens for chunk in heard if isinstance(chunk, AudioChunk)) == 120


def test_a_later_utterance_that_can_not_be_planned_ends_the_stream(desk: Desk) -> None:
    desk.scheduler.plan = reading = Reading("60+60", broken=1)
    _, heard = desk.open(reading.asked)
    wait_until(lambda: heard and isinstance(heard[-1], CosyError))
    assert "bad text" in str(heard[-1])
    assert isinstance(heard[0], AudioChunk)
    assert not any(chunk.final for chunk in heard if isinstance(chunk, AudioChunk))
    assert desk.ask(lambda scheduler: scheduler.idle)


def test_a_system_without_another_thread(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def submit(_: Callable[[], None]) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(desk.intake.threads, "submit", submit)
        _, heard = desk.open(request(AT_ONCE * "a", 5))
        wait_until(lambda: bool(heard))
    assert isinstance(heard[0], OverloadError)
    assert desk.ask(lambda scheduler: scheduler.idle)
    _, heard = desk.open(request(AT_ONCE * "a", 5))
    wait_until(lambda: bool(heard))
    assert isinstance(heard[0], AudioChunk)
