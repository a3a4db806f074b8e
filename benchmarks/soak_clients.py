"""Clients of a server that has to last: listeners, leavers, fools, writers, and one who kills.

Each does one thing and says how it ended.
"""

from __future__ import annotations

import base64
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx
import numpy as np
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from benchmarks.memory import leave
from cosyserve.audio import AudioFormat, encode
from cosyserve.bench.sentences import ENGLISH

SPEECH, VOICES = "/v1/audio/speech", "/v1/audio/voices"
FORMATS = [item.value for item in AudioFormat]
RESTART_SECONDS = 30.0  # after a worker was killed, in which requests may fail
BUSY = (429, 503)
NUMBERS = " It costs $3.50, or 12% of 1,024, since 1999."

Client = Callable[["Visit"], str]


@dataclass
class Visit:
    """What a client has: the server, and its own chance."""

    url: str
    http: httpx.Client
    chance: random.Random

    def sentence(self) -> str:
        text = " ".join(self.chance.choices(ENGLISH, k=self.chance.choice((1, 1, 2))))
        return text + (NUMBERS if self.chance.random() < 0.2 else "")


def listener(visit: Visit) -> str:
    """Hears a text to its end, as bytes or as events."""
    body = {"input": visit.sentence(), "response_format": visit.chance.choice(FORMATS)}
    events = visit.chance.random() < 0.3
    if events:
        body |= {"stream_format": "sse", "response_format": "pcm"}
    with visit.http.stream("POST", SPEECH, json=body) as answer:
        heard = answer.read()
    if answer.status_code in BUSY:
        return f"refused {answer.status_code}"
    if answer.status_code != 200 or not heard:
        return f"wrong: {answer.status_code}"
    if events and b"speech.audio.done" not in heard:
        return "cut"
    return "heard"


def leaver(visit: Visit) -> str:
    """Leaves in the middle of its request or of its answer."""
    port = urlsplit(visit.url).port
    assert port
    leave(port, visit.chance)
    return "left"


def fool(visit: Visit) -> str:
    """Sends what must be refused."""
    bodies: list[bytes] = [
        b"{",
        b"\xff\xfe",
        b"[" * 5_000,
        *(
            json.dumps(body).encode()
            for body in (
                {"input": ""},
                {"input": "?!"},
                {"input": 7},
                {"input": "Hello.", "speed": "fast"},
                {"input": "Hello.", "speed": 1e9},
                {"input": "Hello.", "voice": "../../etc/passwd"},
                {"input": "Hello.", "response_format": "exe"},
                {"input": "Hello.", "reference_audio": "bm8gc291bmQ=", "reference_text": "No."},
                {"input": "a" * 100_000},
                {"input": "\u65e0"},
            )
        ),
    ]
    content = visit.chance.choice(bodies)
    answer = visit.http.post(SPEECH, content=content, headers={"Content-Type": "application/json"})
    if answer.status_code in BUSY:
        return f"refused {answer.status_code}"
    return "told" if 400 <= answer.status_code < 500 else f"wrong: {answer.status_code}"


def writer(visit: Visit) -> str:
    """Sends a text in pieces; one in four leaves before its end."""
    leaves = visit.chance.random() < 0.25
    with connect(visit.url.replace("http", "ws", 1) + SPEECH + "/stream", max_size=None) as socket:
        socket.send(json.dumps({"type": "start", "model": "tts-1", "response_format": "pcm"}))
        for word in visit.sentence().split():
            socket.send(json.dumps({"type": "text", "text": f"{word} "}))
        if leaves:
            return "left"
        socket.send(json.dumps({"type": "end"}))
        while True:
            message = socket.recv(timeout=60)
            if isinstance(message, bytes):
                continue
            event = json.loads(message)
            if event["type"] == "done":
                return "heard"
            if event["type"] == "error":
                status = event["error"].get("code", "")
                known = {"overloaded": "refused 429", "engine_unavailable": "refused 503"}
                return known.get(status, f"wrong: {status}")


def newcomer(visit: Visit) -> str:
    """Adds a voice, speaks with it, speaks with the recording itself, and removes the voice."""
    number = visit.chance.randrange(10**9)
    noise = 0.1 * np.random.default_rng(number).standard_normal(24_000).astype(np.float32)
    wave, name = encode(noise, AudioFormat.WAV), f"soak-{number}"
    form = {"name": name, "text": "A few words.", "consent": "the benchmark agreed"}
    added = visit.http.post(VOICES, data=form, files={"audio_sample": ("a.wav", wave)})
    if added.status_code in BUSY:
        return f"refused {added.status_code}"
    if added.status_code != 201:
        return f"wrong: {added.status_code}"
    recording = {"reference_audio": base64.b64encode(wave).decode(), "reference_text": "Words."}
    said = [
        visit.http.post(SPEECH, json={"input": "Hello there.", **voice}).status_code
        for voice in ({"voice": name}, recording)
    ]
    removed = visit.http.delete(f"{VOICES}/{name}").status_code
    if set(said) & set(BUSY):
        return "refused"
    return "heard" if (said, removed) == ([200, 200], 200) else f"wrong: {said} {removed}"


CLIENTS: tuple[Client, ...] = (listener, listener, listener, leaver, fool, writer, newcomer)


@dataclass
class Crowd:
    """A thread for each client, which comes again and again while the server is open."""

    url: str
    outcomes: Counter[str] = field(default_factory=Counter)
    unexpected: list[str] = field(default_factory=list)
    kills: list[float] = field(default_factory=list)
    visits: int = 0

    def come(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        chances = [random.Random(f"{self.visits} {number}") for number in range(len(CLIENTS))]
        threads = [
            threading.Thread(target=self._visit, args=(client, chance, until))
            for client, chance in zip(CLIENTS, chances, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _visit(self, client: Client, chance: random.Random, until: float) -> None:
        with httpx.Client(base_url=self.url, timeout=120) as http:
            while (begun := time.monotonic()) < until:
                try:
                    outcome = client(Visit(self.url, http, chance))
                except (httpx.HTTPError, WebSocketException, OSError) as error:
                    outcome = f"cut: {type(error).__name__}"
                except Exception as error:  # no visit may end the visits
                    outcome = f"wrong: {error!r:.80}"
                self._note(client.__name__, outcome, begun)
                if outcome.startswith("refused"):
                    time.sleep(1.0)

    def _note(self, client: str, outcome: str, begun: float) -> None:
        self.visits += 1
        now = time.monotonic()
        beside_a_kill = any(
            kill <= now and begun <= kill + RESTART_SECONDS for kill in list(self.kills)
        )
        if outcome.startswith(("wrong", "cut", "refused 503")) and not beside_a_kill:
            self.unexpected.append(f"{client}: {outcome}")
        self.outcomes[f"{client}: {outcome}"] += 1
