"""LiteLLM's `speech` against a server of its user's own."""

from __future__ import annotations

import json
import sys

import litellm

answer = litellm.speech(
    model="openai/tts-1",
    voice="alloy",
    input="Hello.",
    response_format="pcm",
    api_base=sys.argv[1],
    api_key="none",
)
print(json.dumps([len(answer.content) / 48_000]))
