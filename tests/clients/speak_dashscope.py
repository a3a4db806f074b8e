"""DashScope's SDK makes a voice, and says a text: whole, in pieces, and until it is cancelled."""

from __future__ import annotations

import base64
import io
import json
import sys
import threading
import wave

import dashscope
from dashscope.audio.tts_v2 import (
    AudioFormat,
    ResultCallback,
    SpeechSynthesizer,
    VoiceEnrollmentService,
)

dashscope.api_key = "none"
dashscope.base_http_api_url = sys.argv[1].removesuffix("/v1") + "/api/v1"
ADDRESS = sys.argv[1].replace("http", "ws", 1).removesuffix("/v1") + "/api-ws/v1/inference"
PCM = AudioFormat.PCM_24000HZ_MONO_16BIT


class Listener(ResultCallback):
    def __init__(self) -> None:
        self.audio = b""
        self.heard, self.complete = threading.Event(), threading.Event()

    def on_data(self, data: bytes) -> None:
        self.audio += data
        self.heard.set()

    def on_complete(self) -> None:
        self.complete.set()


def synthesizer(listener: Listener | None = None, voice: str = "default") -> SpeechSynthesizer:
    return SpeechSynthesizer(
        model="cosyvoice-v3-flash", voice=voice, format=PCM, callback=listener, url=ADDRESS
    )


def recording() -> str:
    """A second of something, as a URL."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setparams((1, 2, 24_000, 0, "NONE", ""))
        out.writeframes(bytes(range(256)) * 188)
    return "data:audio/wav;base64," + base64.b64encode(file.getvalue()).decode()


voices = VoiceEnrollmentService()
asked = {"target_model": "cosyvoice-v3-flash", "prefix": "ada", "url": recording()}
made = voices.create_voice(**asked, consent="Ada agreed.")
assert [voice["voice_id"] for voice in voices.list_voices(prefix="ada")] == [made]
whole = synthesizer(voice=made).call("Hello.")
voices.delete_voice(made)
assert voices.list_voices(prefix="ada") == []

listener = Listener()
pieces = synthesizer(listener)
for piece in ("Hel", "lo."):
    pieces.streaming_call(piece)
pieces.streaming_complete()

stopped = Listener()
endless = synthesizer(stopped)
endless.streaming_call("Hello")
assert stopped.heard.wait(10)
endless.streaming_cancel()
assert stopped.complete.is_set()
assert len(stopped.audio) < len(whole)

print(json.dumps([len(audio) / 48_000 for audio in (whole, listener.audio)]))
