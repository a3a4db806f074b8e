"""Texts full of numbers: what it takes to read them, and what others notice.

    python -m benchmarks.numbers [--json FILE]

First 4,096 characters of each kind of number are planned in this process, with nothing cached: what
the rules know, what only a grammar knows, and both as the tests' corpus draws them. Then 20 clients
send such texts to a server with the test model and hang up before they hear much, over and over, while another client
waits for the first audio of a sentence with numbers.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random

import httpx

from benchmarks.figures import Figure, run
from benchmarks.servers import Server, served
from cosyserve.text import segments
from cosyserve.text.language import Language
from cosyserve.text.numbers import read_numbers
from tests.text.number_rules.corpus import CHINESE, ENGLISH, Draw

CHARACTERS = 4096
ATTACKERS = 20
PATIENCE = (
    0.1  # seconds until an attacker hangs up: its speech would take the cores, not its numbers
)
PAUSE = 2.0  # seconds between two attacks of one client, at most
ROUNDS = 9
VICTIM = "On 5 March 2024 there were 1,250 of them, at $5.20 each."
Writer = Callable[[Draw], str]


def full_of(kind: Writer, seed: object, mark: str = ", ") -> str:
    draw, text = Draw(str(seed)), ""
    while len(text) < CHARACTERS:
        text += kind(draw) + mark
    return text[:CHARACTERS]


def odd(draw: Draw) -> str:
    """What no rule knows."""
    return "".join(draw.choice("0123456789.,:/-a@$%") for _ in range(draw.randint(5, 60)))


ATTACKS: dict[str, Writer] = {
    "prices": lambda d: f"${d.number(5)}",
    "60-digit numbers": lambda d: d.digits(60),
    "odd strings": odd,
}


def planning() -> list[Figure]:
    texts = {f"English, {kind}": full_of(write, 1) for kind, write in (ENGLISH | ATTACKS).items()}
    texts |= {f"Chinese, {kind}": full_of(write, 1, "，") for kind, write in CHINESE.items()}
    for language in (Language.ENGLISH, Language.CHINESE):
        read_numbers("1+1", language)  # loads its grammar
    figures = []
    for name, text in texts.items():
        asked: list[str] = []

        def read(stretch: str, language: Language, asked: list[str] = asked) -> str:
            asked.append(stretch)
            return read_numbers(stretch, language)

        read_numbers.cache_clear()
        began = time.process_time()
        segments(text, len, read=read)
        took = time.process_time() - began
        detail = f"{sum(map(len, asked))} characters by a grammar"
        figures.append(Figure(f"{name}: planned in", took, 1.0, "CPU s", detail=detail))
    return figures


def first_audio(server: Server) -> float:
    fields = {"model": "tts-1", "input": VICTIM, "response_format": "pcm"}
    began = time.perf_counter()
    with httpx.stream("POST", f"{server.url}/v1/audio/speech", json=fields, timeout=120) as answer:
        answer.raise_for_status()
        next(answer.iter_raw())
        return time.perf_counter() - began


@contextmanager
def attacked(server: Server, kind: Writer) -> Iterator[None]:
    over = threading.Event()

    def attack(number: int) -> None:
        random = Random(number)
        while not over.is_set():
            fields = {"model": "tts-1", "input": full_of(kind, random.random())}
            with suppress(httpx.HTTPError):
                httpx.post(f"{server.url}/v1/audio/speech", json=fields, timeout=PATIENCE)
            over.wait(PAUSE * random.random())

    threads = [threading.Thread(target=attack, args=(number,)) for number in range(ATTACKERS)]
    for thread in threads:
        thread.start()
    try:
        time.sleep(1.0)
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def beside(server: Server, kind: Writer) -> float:
    with attacked(server, kind):
        return statistics.median(first_audio(server) for _ in range(ROUNDS))


def measure() -> list[Figure]:
    figures = planning()
    with served() as server:
        first_audio(server)
        alone = statistics.median(first_audio(server) for _ in range(ROUNDS))
        words = beside(server, lambda draw: "word")
        for name, kind in ATTACKS.items():
            found = beside(server, kind)
            detail = (
                f"{found * 1e3:.0f} ms, alone {alone * 1e3:.0f}, beside words {words * 1e3:.0f}"
            )
            figures.append(
                Figure(f"first audio beside 20 × {name} / alone", found / alone, 1.5, detail=detail)
            )
            figures.append(
                Figure(f"first audio beside 20 × {name} / words", found / words, 1.5, detail=detail)
            )
    return figures


if __name__ == "__main__":
    run(measure, __doc__ or "")
