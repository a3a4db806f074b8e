"""Turns of plans: who waits in silence goes first."""

from __future__ import annotations

import threading
from collections.abc import Callable

from cosyserve.engine.scheduling.plan_turns import PlanTurns
from tests.waiting import wait_until


def test_short_texts_that_nobody_has_heard_of_go_first() -> None:
    turns, order = PlanTurns(), list[str]()

    def plan_one(name: str, rank: tuple[bool, int]) -> None:
        with turns.turn(rank):
            order.append(name)

    def after(waiting: int) -> Callable[[], bool]:
        return lambda: len(turns._waiting) == waiting

    ranks = {
        "heard": (True, 9),
        "long": (False, 4096),
        "longer": (False, 5000),
        "short": (False, 9),
    }
    threads = [threading.Thread(target=plan_one, args=item) for item in ranks.items()]
    with turns.turn((False, 9)):
        for number, thread in enumerate(threads):
            thread.start()
            wait_until(after(number + 1))
        with turns.pause((False, 7000)):  # whoever waits for a grammar lets all of them go on
            wait_until(lambda: len(order) == 4)
        order.append("paused")
    for thread in threads:
        thread.join()
    assert order == ["short", "long", "longer", "heard", "paused"]
    with turns.turn((True, 1)):
        assert not turns._waiting
