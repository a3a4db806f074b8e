"""The loop at rest."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.waiting import START_PATIENCE

AT_REST = """
import threading, time
from cosyserve.engine.scheduling import loop
from tests.own_memory import own_memory

class Nothing:
    idle = True
    def step(self): return False
    def check_idle(self): pass

loop.REST_SECONDS = 0.5
made = loop.Loop(Nothing())
thread = threading.Thread(target=made.run)
thread.start()
blocks = [bytearray(100_000) for _ in range(2000)]
del blocks[::2]
before = own_memory()
made.wake()
until = time.monotonic() + 60
while before - own_memory() < 50_000_000 and time.monotonic() < until:
    time.sleep(0.05)
print(before - own_memory())
answered = threading.Event()
made.submit(lambda scheduler: answered.set())
print(answered.wait(60))
made.stop()
thread.join()
"""


@pytest.mark.server
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_at_rest_freed_memory_goes_back_and_commands_are_still_heard() -> None:
    child = [sys.executable, "-c", AT_REST]
    done = subprocess.run(child, capture_output=True, text=True, check=True, timeout=START_PATIENCE)
    returned, answered = done.stdout.split()
    assert int(returned) > 50_000_000  # of 100 million between blocks in use
    assert answered == "True"
