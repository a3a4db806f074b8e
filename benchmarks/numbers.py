"""Texts full of numbers: what it takes to read them, and what others notice.

    python -m benchmarks.numbers [--json FILE]

First 4,096 characters of each kind of number are planned in this process, with nothing cached: what
the rules know, what only a grammar knows, and both as the tests' corpus draws them. Then 20 such
texts at once come to the scheduler of a model that only takes its time, and another client waits
for the first audio of a sentence with numbers: speech costs nothing there, reading all it does.
"""

from __future__ import annotations

import queue
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from benchmarks.figures import Figure, run
from benchmarks.paced_server import TOKENS, PacedLM
from cosyserve.contracts import Sampling, SpeechRequest
from cosyserve.engine.compute.generation import Generation, WholeText
from cosyserve.engine.scheduling.intake import Intake, Ticket
from cosyserve.engine.scheduling.loop import Loop
from cosyserve.engine.scheduling.scheduler import Scheduler
from cosyserve.engine.scheduling.session import Utterance
from cosyserve.errors import CosyError
from cosyserve.text import byte_tokenizer, segments
from cosyserve.text.language import Language
from cosyserve.text.number_process import NumberProcess
from cosyserve.text.numbers import Reader, read_numbers
from tests.engine.mocks import CONFIG, VOICE, Humming, HummingToken2Wav
from tests.text.number_rules.corpus import CHINESE, ENGLISH, Draw

CHARACTERS = 4096
ATTACKERS = 20
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


def words(draw: Draw) -> str:
    """No number at all, for comparison."""
    return "seventeen thousand"


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


def plan(request: SpeechRequest, read: Reader, device: int) -> list[Utterance]:
    """The text is read as always; what is spoken is as long for all."""
    assert isinstance(request.text, str)
    assert segments(request.text, len, read=read)

    def generate(attempt: int) -> Generation:
        return Generation(WholeText(CONFIG, [0] * TOKENS, 0), 0, Sampling(), 10_000)

    return [Utterance(generate, Humming("paced"), stream=True)]  # type: ignore[arg-type]


@contextmanager
def desk() -> Iterator[Intake]:
    slots = ATTACKERS + 1
    token2wav = HummingToken2Wav()
    loop = Loop(Scheduler(PacedLM(slots), [token2wav], plan, slots=slots))  # type: ignore[list-item]
    numbers = NumberProcess()
    intake = Intake(loop, byte_tokenizer(), numbers)
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
    with desk() as intake:
        first_audio(intake)
        alone = statistics.median(first_audio(intake) for _ in range(ROUNDS))
        for name, kind in {"words": words, **ATTACKS}.items():
            found = statistics.median(beside(intake, kind, seed) for seed in range(ROUNDS))
            seconds = f"{found:.3f} and {alone:.3f} s"
            what = f"first audio beside 20 × {name} / alone"
            figures.append(Figure(what, found / alone, 1.5, detail=seconds))
    return figures


def measure() -> list[Figure]:
    return planning() + crowding()


if __name__ == "__main__":
    run(measure, __doc__ or "")
