"""Cartesia's SDK says a text in pieces, in one of several contexts."""

from __future__ import annotations

import json
import sys
from typing import Any

from cartesia import Cartesia

HOST = sys.argv[1].removesuffix("/v1")
FORMAT = {"container": "raw", "encoding": "pcm_f32le", "sample_rate": 24_000}


def seconds(connection: Any) -> float:
    voice = {"mode": "id", "id": "default"}
    context = connection.context(model_id="sonic-3", voice=voice, output_format=FORMAT)
    for piece in ("Hello, ", "world."):
        context.push(piece)
    context.no_more_inputs()
    audio = b""
    for event in context.receive():
        assert event.type != "error", event
        if event.type == "chunk":
            audio += event.audio
    return len(audio) / 4 / 24_000


client = Cartesia(api_key="none", base_url=HOST, websocket_base_url=HOST.replace("http", "ws", 1))
with client.tts.websocket_connect() as connection:
    print(json.dumps([seconds(connection), seconds(connection)]))
