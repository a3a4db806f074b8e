"""LiveKit's plugins say a text: OpenAI's in events and in raw audio, then those of services whose
text comes in pieces over a WebSocket."""

from __future__ import annotations

import asyncio
import json
import sys

import aiohttp
from livekit.agents import tts
from livekit.agents.types import USERDATA_TIMED_TRANSCRIPT
from livekit.plugins import cartesia, deepgram, elevenlabs, openai


async def seconds(speaker: tts.TTS) -> float:
    speaker.prewarm()
    frames = [event.frame async for event in speaker.synthesize("Hello.")]
    await speaker.aclose()
    assert {frame.sample_rate for frame in frames} == {24_000}
    return sum(frame.duration for frame in frames)


def check_times(words: list[tuple[str, float, float]], text: str) -> None:
    """Every word once, one after the other."""
    assert "".join(word for word, _, _ in words).split() == text.split(), words
    assert all(start <= end for _, start, end in words), words
    starts = [start for _, start, _ in words]
    assert starts == sorted(starts), words


async def seconds_in_pieces(speaker: tts.TTS) -> float:
    """As long as the speech is, whatever its sample rate."""
    pieces = ("Hel", "lo ", "there, how ", "are you?")
    async with speaker.stream() as stream:
        for piece in pieces:
            stream.push_text(piece)
        stream.end_input()
        frames = [event.frame async for event in stream]
    await speaker.aclose()
    if speaker.capabilities.aligned_transcript:
        timed = [word for f in frames for word in f.userdata.get(USERDATA_TIMED_TRANSCRIPT, ())]
        check_times([(str(w), w.start_time, w.end_time) for w in timed], "".join(pieces))
    assert {frame.sample_rate for frame in frames} == {speaker.sample_rate}
    return sum(frame.duration for frame in frames)


async def main(url: str) -> list[float]:
    host = url.removesuffix("/v1")
    spoken = [
        await seconds(openai.TTS(base_url=url, api_key="none", model=model, voice="ash"))
        for model in ("gpt-4o-mini-tts", "tts-1")
    ]
    async with aiohttp.ClientSession() as session:
        common = {"api_key": "none", "http_session": session}
        speakers = (
            cartesia.TTS(base_url=host, voice="default", **common),
            elevenlabs.TTS(base_url=url, voice_id="default", encoding="pcm_24000", **common),
            elevenlabs.TTS(base_url=url, voice_id="default", encoding="mp3_44100_128", **common),
            deepgram.TTS(base_url=f"{url}/speak", model="default", **common),
        )
        return spoken + [await seconds_in_pieces(speaker) for speaker in speakers]


print(json.dumps(asyncio.run(main(sys.argv[1]))))
