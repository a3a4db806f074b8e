"""Long texts: what it takes to plan them, and what others notice.

    python -m benchmarks.numbers [--json FILE]

First 4,096 characters of each kind are planned in this process as for the small voice, with no word
and no number cached: words, marks, Chinese, numbers that the rules know, numbers that only a
grammar knows, which has read others before. Then 20 such texts at once come to the scheduler of a
model that only takes its time, and another client waits for the first audio of a sentence with
numbers: speech costs nothing there, reading all it does.
"""

from __future__ import annotations

import os
import queue
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from string import ascii_lowercase

from benchmarks.figures import Figure, run
from benchmarks.paced_server import TOKENS, PacedLM
from cosyserve.checkpoints.load import SHIPPED, load_model
from cosyserve.contracts import Sampling, SpeechRequest
from cosyserve.engine.compute.generation import Generation, WholeText
from cosyserve.engine.scheduling.intake import Intake, Ticket
from cosyserve.engine.scheduling.loop import Loop
from cosyserve.engine.scheduling.scheduler import Scheduler
from cosyserve.engine.scheduling.session import Utterance
from cosyserve.errors import CosyError
from cosyserve.text import TextTokenizer, segments
from cosyserve.text.language import Language
from cosyserve.text.number_process import NumberProcess
from cosyserve.text.numbers import Reader, read_numbers
from tests.engine.mocks import CONFIG, VOICE, Humming, HummingToken2Wav
from tests.text.number_rules.corpus import CHINESE, ENGLISH, KINDS, Draw

CHARACTERS = 4096
ATTACKERS = 20
ROUNDS = 9
NUMBERS_BEFORE = 20  # of each kind
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


def letters(longest: int) -> Writer:
    """Words that nobody has seen before."""

    def word(draw: Draw) -> str:
        return "".join(
            draw.choice(ascii_lowercase) for _ in range(draw.randint(longest // 4, longest))
        )

    return word


WORDS: dict[str, Writer] = {
    "the same two words": lambda d: "seventeen thousand",
    "words of random letters": letters(10),
    "long words of random letters": letters(64),
    "marks": lambda d: "a" + d.choice(".?!;:,…-'\"()") * d.randint(1, 3),
}
ATTACKS: dict[str, Writer] = {
    "prices": lambda d: f"${d.number(5)}",
    "60-digit numbers": lambda d: d.digits(60),
    "odd strings": odd,
}
HAN: dict[str, Writer] = {"words": lambda d: d.any_han() + d.han()}


def small_voice() -> TextTokenizer:
    tokenizer = load_model(SHIPPED).text_tokenizer
    assert tokenizer
    return tokenizer


def planning() -> list[Figure]:
    tokenizer = small_voice()
    texts = {
        f"English, {kind}{name}": full_of(write, 1, mark)
        for kind, write in (WORDS | ENGLISH | ATTACKS).items()
        for name, mark in {"": ", ", ", in sentences": ". "}.items()
    }
    texts |= {
        f"Chinese, {kind}": full_of(write, 1, "，") for kind, write in (HAN | CHINESE).items()
    }
    _, loaded = planned("English, odd strings, grammar and all loaded", full_of(odd, 1), tokenizer)
    read_before()
    return [loaded, *(f for name, text in texts.items() for f in planned(name, text, tokenizer))]


def read_before() -> None:
    """What a grammar has found out by the numbers of other texts, it keeps."""
    for language, kinds in (KINDS | {Language.ENGLISH: ENGLISH | ATTACKS}).items():
        for kind, write in kinds.items():
            draw = Draw(f"before {kind}")
            for _ in range(NUMBERS_BEFORE):
                read_numbers(write(draw), language)


def planned(name: str, text: str, tokenizer: TextTokenizer) -> tuple[Figure, Figure]:
    """Its first segment, and all of it."""
    asked: list[str] = []

    def read(stretch: str, language: Language) -> str:
        asked.append(stretch)
        return read_numbers(stretch, language)

    assert tokenizer.pronouncer
    read_numbers.cache_clear()
    tokenizer.pronouncer._known.clear()
    tokenizer._lengths.clear()
    began = time.process_time()
    parts = segments(text, tokenizer.length, read=read)
    tokenizer.encode(next(parts))
    first, by_grammar = time.process_time() - began, sum(map(len, asked))
    for part in parts:
        tokenizer.encode(part)
    took = time.process_time() - began
    return (
        Figure(f"{name}: first segment in", first, 0.1, "CPU s", detail=_share(by_grammar)),
        Figure(f"{name}: planned in", took, 1.0, "CPU s", detail=_share(sum(map(len, asked)))),
    )


def _share(characters: int) -> str:
    return f"{characters} characters by a grammar"


class Reading:
    """Plans as always, for a tokenizer; what is spoken is as long for all."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer

    def __call__(self, request: SpeechRequest, read: Reader, device: int) -> Iterator[Utterance]:
        assert isinstance(request.text, str)

        def generate(attempt: int) -> Generation:
            return Generation(WholeText(CONFIG, [0] * TOKENS, 0), 0, Sampling(), 10_000)

        for part in segments(request.text, self._tokenizer.length, read=read):
            self._tokenizer.encode(part)
            yield Utterance(generate, Humming("paced"), stream=True)  # type: ignore[arg-type]


@contextmanager
def desk(tokenizer: TextTokenizer) -> Iterator[Intake]:
    slots = ATTACKERS + 1
    plan, token2wav = Reading(tokenizer), HummingToken2Wav()
    loop = Loop(Scheduler(PacedLM(slots), [token2wav], plan, slots=slots))  # type: ignore[list-item]
    numbers = NumberProcess()
    intake = Intake(loop, tokenizer, numbers)
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        yield intake
    finally:
        intake.close()
        loop.stop()
        thread.join()
        numbers.close()


def first_audio(intake: Intake) -> float:
    heard: queue.SimpleQueue[object] = queue.SimpleQueue()
    ticket = Ticket(intake, SpeechRequest(VICTIM, VOICE), heard.put)
    began = time.perf_counter()
    ticket.open()
    item = heard.get(timeout=120)
    took = time.perf_counter() - began
    ticket.cancel()
    if isinstance(item, CosyError):
        raise item
    return took


def beside(intake: Intake, kind: Writer, seed: int) -> float:
    texts = [full_of(kind, f"{seed} {number}") for number in range(ATTACKERS)]
    attacks = [Ticket(intake, SpeechRequest(text, VOICE), lambda item: None) for text in texts]
    for attack in attacks:
        attack.open()
    took = first_audio(intake)
    for attack in attacks:
        attack.cancel()
    return took


def crowding() -> list[Figure]:
    figures = []
    with desk(small_voice()) as intake:
        first_audio(intake)
        for name, kind in (WORDS | ATTACKS).items():
            alone, found = [], []
            for seed in range(ROUNDS):
                alone.append(first_audio(intake))
                found.append(beside(intake, kind, seed))
            usual, crowded = statistics.median(alone), statistics.median(found)
            what = f"first audio beside {ATTACKERS} × {name} / alone"
            seconds = f"{crowded:.3f} and {usual:.3f} s"
            figures.append(Figure(what, crowded / usual, 1.5, detail=seconds))
    return figures


def measure() -> list[Figure]:
    return planning() + crowding()


if __name__ == "__main__":
    if "OPENBLAS_NUM_THREADS" not in os.environ:  # numpy has one thread, as in a worker
        os.execve(sys.executable, sys.orig_argv, os.environ | {"OPENBLAS_NUM_THREADS": "1"})
    run(measure, __doc__ or "")
