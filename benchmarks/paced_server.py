"""The real gateway and scheduler before an LM and a token2wav that only take their time.

What it can carry depends on the scheduler alone, not on what else the machine does.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import uvloop

from cosyserve.contracts import Floats, ModelInfo, Sampling, SpeechRequest, VoiceFormat
from cosyserve.engine.compute.generation import Generation, WholeText
from cosyserve.engine.in_process import LocalEngine
from cosyserve.engine.scheduling.intake import Intake
from cosyserve.engine.scheduling.loop import Loop
from cosyserve.engine.scheduling.scheduler import Scheduler
from cosyserve.engine.scheduling.session import Utterance
from cosyserve.gateway.limits import Limits
from cosyserve.gateway.serve import serve
from cosyserve.settings import Settings
from cosyserve.text import byte_tokenizer
from cosyserve.text.number_process import NumberProcess
from cosyserve.text.numbers import Reader
from cosyserve.voices.store import open_store
from tests.engine.mocks import CONFIG, VOICE, CountingLM, Humming, HummingToken2Wav

SLOTS, WAITING = 8, 64
TOKENS = 60
STEP_SECONDS = 0.01
CHUNK_SECONDS = 0.03


class PacedLM(CountingLM):
    def step(self) -> bool:
        if self.rows:
            time.sleep(STEP_SECONDS)
        return super().step()


class PacedToken2Wav(HummingToken2Wav):
    def advance(
        self, states: Sequence[Humming], tokens: Sequence[Sequence[int]], final: Sequence[bool]
    ) -> list[tuple[Floats, Humming]]:
        time.sleep(CHUNK_SECONDS * len(states))
        self.calls.clear()
        return super().advance(states, tokens, final)


def plan(request: SpeechRequest, read: Reader, device: int) -> list[Utterance]:
    def generate(attempt: int) -> Generation:
        return Generation(WholeText(CONFIG, [0] * TOKENS, 0), 0, Sampling(), 10_000)

    return [Utterance(generate, Humming("paced"), stream=request.stream)]  # type: ignore[arg-type]


class PacedEngine(LocalEngine):
    def __init__(self) -> None:
        self.model = ModelInfo("paced", VoiceFormat(VOICE.family), False, {"default": VOICE})
        self._numbers = NumberProcess()
        scheduler = Scheduler(
            PacedLM(SLOTS),
            [PacedToken2Wav()],  # type: ignore[list-item]
            plan,
            slots=SLOTS,
            max_waiting=WAITING,
        )
        self._loop = Loop(scheduler)
        self._intake = Intake(self._loop, byte_tokenizer(), self._numbers)
        self._thread = threading.Thread(target=self._loop.run, daemon=True)
        self._thread.start()
        self._enrolling = ThreadPoolExecutor(1)


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        await serve(PacedEngine(), open_store(folder), "127.0.0.1", 0, Limits.of(Settings()))


if __name__ == "__main__":
    uvloop.run(main())
