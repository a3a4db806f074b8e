"""DashScope's SDK says a text: whole, in pieces, and in pieces until it is cancelled."""

from __future__ import annotations

import json
import sys
import threading

import dashscope
from dashscope.audio.tts_v2 import AudioFormat, ResultCallback, SpeechSynthesizer

dashscope.api_key = "none"
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


def synthesizer(listener: Listener | None = None) -> SpeechSynthesizer:
    return SpeechSynthesizer(
        model="cosyvoice-v3-flash", voice="default", format=PCM, callback=listener, url=ADDRESS
    )


whole = synthesizer().call("Hello.")

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
