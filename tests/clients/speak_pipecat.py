"""Pipecat's OpenAI service says a text in a pipeline, with one of the names that it knows."""

from __future__ import annotations

import asyncio
import json
import sys

from pipecat.frames.frames import ErrorFrame, TTSAudioRawFrame, TTSSpeakFrame
from pipecat.services.openai.tts import OpenAITTSService
from pipecat.tests.utils import run_test


async def seconds(url: str, voice: str) -> float:
    settings = OpenAITTSService.Settings(voice=voice)
    service = OpenAITTSService(api_key="none", base_url=url, settings=settings)
    down, up = await run_test(service, frames_to_send=[TTSSpeakFrame("Hello.")])
    assert not [frame for frame in (*down, *up) if isinstance(frame, ErrorFrame)]
    frames = [frame for frame in down if isinstance(frame, TTSAudioRawFrame)]
    assert {frame.sample_rate for frame in frames} == {24_000}
    return sum(len(frame.audio) for frame in frames) / 48_000


async def main(url: str) -> list[float]:
    return [await seconds(url, voice) for voice in ("marin", "onyx")]


print(json.dumps(asyncio.run(main(sys.argv[1]))))
