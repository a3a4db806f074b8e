"""RealtimeTTS's OpenAI engine puts a text's audio into its queue."""

from __future__ import annotations

import json
import os
import queue
import sys
from types import ModuleType

try:
    import pyaudio  # noqa: F401
except ImportError:  # it would play, and needs a compiler to be installed
    sys.modules["pyaudio"] = ModuleType("pyaudio")
os.environ["OPENAI_BASE_URL"] = sys.argv[1]
from RealtimeTTS.engines.openai_engine import OpenAIEngine

engine = OpenAIEngine(api_key="none", response_format="pcm")
engine.queue = queue.Queue()
assert engine.synthesize("Hello.")
audio = b"".join(engine.queue.get() for _ in range(engine.queue.qsize()))
print(json.dumps([len(audio) / 48_000]))
