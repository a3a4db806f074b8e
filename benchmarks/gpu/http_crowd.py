"""Crowds over HTTP: `cosyserve serve` with its worker, and listeners in a process of their own.

Utterances of 5 to 20 s in four voices are asked for at random.

    python -m benchmarks.gpu.http_crowd URL LISTENERS STREAMS SHORTEST LONGEST

is the listeners; it prints what they heard as JSON.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.gpu.bench import Bench, percentile
from cosyserve.bench.playback import Arrival, worst_underrun
from cosyserve.contracts import SAMPLE_RATE

CROWDS = 200, 320, 260, 400, 100
VOICES = 4
TOKENS_PER_LETTER = 5  # of speech, so that a text's length is its speech's
LISTENING = re.compile(r"listening on (http://\S+)")


@dataclass
class HTTPFigures:
    """One listener after another; crowds by their listeners on average; the largest of them with
    first audio p95 <= 300 ms and C100 >= 99 %."""

    http_first_audio_ms: dict[str, float]
    http_crowd: dict[str, dict[str, float]]
    max_realtime_streams_http: int


def http_crowd(bench: Bench) -> HTTPFigures:
    found: dict[str, dict[str, float]] = {}
    points = [(1, 2)] if bench.tiny else [(1, 30), *((count, 500) for count in CROWDS)]
    with tempfile.TemporaryDirectory() as home, _serving(bench, Path(home)) as url:
        for listeners, streams in points:
            shortest, longest = (1, 2) if bench.tiny else (5, 20)
            needed = streams * (shortest + longest) / 2 / listeners + longest
            if listeners == 1 and not bench.tiny:
                needed = streams * 0.3
            if needed > bench.left:
                continue
            asked = (url, listeners, streams, shortest, longest)
            command = [sys.executable, "-m", "benchmarks.gpu.http_crowd", *map(str, asked)]
            heard = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
            bench.samples[f"http_{listeners}"] = heard
            found[str(listeners)] = _summary(heard, streams)
    alone = found.pop("1")
    first = {name: alone[f"first_audio_{name}_ms"] for name in ("p50", "p95")}
    smooth = [int(listeners) for listeners, crowd in found.items() if _smooth(crowd)]
    return HTTPFigures(first, found, max(smooth, default=0))


def _smooth(crowd: dict[str, float]) -> bool:
    return crowd["first_audio_p95_ms"] <= 300 and crowd["c100"] >= 0.99


def _summary(heard: list[dict[str, float]], streams: int) -> dict[str, float]:
    first = [one["first_ms"] for one in heard]
    return {
        "first_audio_p50_ms": percentile(first, 0.5),
        "first_audio_p95_ms": percentile(first, 0.95),
        "c100": sum(one["underrun_s"] <= 0.1 for one in heard) / streams,
        "failures": streams - len(heard),
    }


@contextmanager
def _serving(bench: Bench, home: Path) -> Iterator[str]:
    """The address of a server, started as its users start it."""
    _write_model(bench, home / "model")
    options = ["--model", str(home / "model"), "--device", bench.device.type, "--port", "0"]
    command = [sys.executable, "-m", "cosyserve", "serve", *options, "--profile", "throughput"]
    env = os.environ | {"COSYSERVE_HOME": str(home)}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            address = LISTENING.search(process.stdout.readline())
            assert address, "the server did not start"
            yield address.group(1)
        finally:
            process.send_signal(signal.SIGTERM)


def _write_model(bench: Bench, folder: Path) -> None:
    """Random weights whose utterances are as long as their texts say."""
    from cosyserve.checkpoints import native
    from cosyserve.checkpoints.parts import Parts
    from cosyserve.text import byte_tokenizer
    from cosyserve.voices.enroll import with_short_first_hop
    from cosyserve.voices.file import save_voice

    assert bench.config.lm
    lm = replace(bench.config.lm, speech_per_text=(TOKENS_PER_LETTER, 2 * TOKENS_PER_LETTER))
    modules = {"lm": bench.lm, "flow": bench.flow, "vocoder": bench.vocoder}
    states = {
        name: {key: weight.cpu().clone() for key, weight in module.state_dict().items()}
        for name, module in modules.items()
    }
    head = states["lm"]  # an end is drawn as soon as it is allowed
    if "head.bias" in head:
        head["head.bias"][lm.eos] = 100.0
    else:  # whatever the state, one of two opposite ends is far ahead
        head["head.weight"][lm.stops[0]] = 100.0 * head["head.weight"][lm.eos]
        head["head.weight"][lm.stops[1]] = -head["head.weight"][lm.stops[0]]
    voices = []
    for number in range(VOICES):
        voice = bench.random_voice(number, 60 + 30 * number)
        voices.append(folder.parent / f"voice{number}.safetensors")
        voice = with_short_first_hop(voice)  # as every voice that was learnt
        save_voice(replace(voice, prompt_text="It was a fine day."), voices[-1])
    config = replace(bench.config, lm=lm, speech=False)
    native.write(Parts(config, states, tokenizer=byte_tokenizer(), voices=tuple(voices)), folder)


async def _listen(url: str, number: int, letters: int, heard: list[dict[str, float]]) -> None:
    """One stream, over a connection of its own."""
    chance = random.Random(number)
    text = "".join(chance.choice("abcdefgh") for _ in range(letters))
    voice = f"voice{number % VOICES}"
    fields = {"model": "tts-1", "voice": voice, "input": text, "seed": number}
    body = json.dumps(fields | {"response_format": "pcm"}).encode()
    at = urlsplit(url)
    asked = time.perf_counter()
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    try:
        head = (
            "POST /v1/audio/speech HTTP/1.1\r\nHost: server\r\nContent-Type: application/json\r\n"
        )
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 200"):
            sys.stderr.write(f"{answer.splitlines()[0]!r}\n")
            return
        arrivals = []
        while size := int(await reader.readline(), 16):
            await reader.readexactly(size + 2)
            arrivals.append(Arrival(time.perf_counter() - asked, size / 2 / SAMPLE_RATE))
        heard.append(
            {
                "first_ms": 1e3 * arrivals[0].at,
                "underrun_s": worst_underrun(arrivals),
                "seconds": sum(arrival.seconds for arrival in arrivals),
            }
        )
    except (OSError, asyncio.IncompleteReadError) as error:
        sys.stderr.write(f"{error!r}\n")
    finally:
        writer.close()


async def _crowd(url: str, listeners: int, streams: int, shortest: int, longest: int) -> None:
    chance = random.Random(0)
    letters_per_second = 25 / TOKENS_PER_LETTER
    lengths = [
        round(letters_per_second * chance.uniform(shortest, longest)) for _ in range(streams)
    ]
    rate = listeners / (sum(lengths) / streams / letters_per_second)
    times = itertools.accumulate(chance.expovariate(rate) for _ in range(streams))
    heard: list[dict[str, float]] = []
    if listeners == 1:
        for number, letters in enumerate(lengths):
            await _listen(url, number, letters, heard)
    else:
        begun = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for number, (letters, when) in enumerate(zip(lengths, times, strict=True)):
                await asyncio.sleep(max(0.0, begun + when - time.perf_counter()))
                tasks.create_task(_listen(url, number, letters, heard))
    sys.stdout.write(json.dumps(heard))


if __name__ == "__main__":
    asyncio.run(_crowd(sys.argv[1], *map(int, sys.argv[2:])))
