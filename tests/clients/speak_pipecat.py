"""Pipecat's services say a text in a pipeline: OpenAI's with one of the names that it knows, then
those whose text goes over a WebSocket."""

from __future__ import annotations

import asyncio
import json
import sys

from pipecat.frames.frames import ErrorFrame, TTSAudioRawFrame, TTSSpeakFrame, TTSTextFrame
from pipecat.services.cartesia.tts import CartesiaTTSService
from pipecat.services.deepgram.tts import DeepgramTTSService
from pipecat.services.elevenlabs.tts import ElevenLabsTTSService
from pipecat.services.openai.tts import OpenAITTSService
from pipecat.services.tts_service import TTSService
from pipecat.tests.utils import SleepFrame, run_test

TEXT = "Hello there, how are you?"
TIMED = (CartesiaTTSService, ElevenLabsTTSService)  # these tell which word is heard when


async def seconds(service: TTSService) -> float:
    frames_to_send = [TTSSpeakFrame(TEXT), SleepFrame(1.0)]
    down, up = await run_test(service, frames_to_send=frames_to_send)
    assert not [frame for frame in (*down, *up) if isinstance(frame, ErrorFrame)]
    if isinstance(service, TIMED):
        words = [frame for frame in down if isinstance(frame, TTSTextFrame)]
        assert [word.text for word in words] == TEXT.split()
        times = [word.pts for word in words]
        assert times == sorted(set(times))
    frames = [frame for frame in down if isinstance(frame, TTSAudioRawFrame)]
    assert {frame.sample_rate for frame in frames} == {24_000}
    return sum(len(frame.audio) for frame in frames) / 48_000


async def main(url: str) -> list[float]:
    address = url.replace("http", "ws", 1).removesuffix("/v1")
    openai = [
        OpenAITTSService(
            api_key="none", base_url=url, settings=OpenAITTSService.Settings(voice=voice)
        )
        for voice in ("marin", "onyx")
    ]
    return [
        await seconds(service)
        for service in (
            *openai,
            CartesiaTTSService(
                api_key="none",
                url=f"{address}/tts/websocket",
                settings=CartesiaTTSService.Settings(voice="default"),
                sample_rate=24_000,
            ),
            ElevenLabsTTSService(
                api_key="none",
                url=address,
                settings=ElevenLabsTTSService.Settings(voice="default"),
                sample_rate=24_000,
            ),
            DeepgramTTSService(
                api_key="none",
                base_url=address,
                settings=DeepgramTTSService.Settings(voice="default"),
                sample_rate=24_000,
            ),
        )
    ]


print(json.dumps(asyncio.run(main(sys.argv[1]))))
