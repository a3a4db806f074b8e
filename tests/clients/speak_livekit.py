"""LiveKit's OpenAI plugin says a text: once in events, once in raw audio."""

from __future__ import annotations

import asyncio
import json
import sys

from livekit.plugins import openai


async def seconds(url: str, model: str) -> float:
    tts = openai.TTS(base_url=url, api_key="none", model=model, voice="ash")
    tts.prewarm()
    frames = [event.frame async for event in tts.synthesize("Hello.")]
    await tts.aclose()
    assert {frame.sample_rate for frame in frames} == {24_000}
    return sum(frame.duration for frame in frames)


async def main(url: str) -> list[float]:
    return [await seconds(url, model) for model in ("gpt-4o-mini-tts", "tts-1")]


print(json.dumps(asyncio.run(main(sys.argv[1]))))
